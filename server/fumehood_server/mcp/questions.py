"""Questions of tools to whoever sits at the MCP client: each is a form there, and its answer the sidecar's to judge."""

from __future__ import annotations

import json
from typing import Any

import anyio
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult

from fumehood_server.mcp.callers import McpCaller
from fumehood_server.mcp.sidecar_link import SidecarLink, SidecarRefusedError
from fumehood_server.model.durations import duration_s
from fumehood_server.telemetry import get_logger

MAX_ASKED = 3
"""How often a question is put again whose answer didn't fit. Then it counts as put aside."""

_NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
_ACTIONS = {
    "accept": tool_pb2.ANSWER_ACTION_ACCEPT,
    "decline": tool_pb2.ANSWER_ACTION_DECLINE,
    "cancel": tool_pb2.ANSWER_ACTION_CANCEL,
}
_Context = ServerRequestContext[Any, Any]


async def ask(question: tool_pb2.ToolQuestion, context: _Context, link: SidecarLink, caller: McpCaller) -> None:
    """Have the client asked on a connection that waits, and hand its answer to the tool (up to 2025-11-25)."""
    form, said = form_of(question), ""
    for _ in range(MAX_ASKED):
        try:
            with anyio.fail_after(duration_s(question.timeout)):
                text = f"{said}{form.message}"
                answer = await context.session.elicit_form(text, form.requested_schema, context.request_id)
        except (TimeoutError, MCPError):
            break
        except Exception as error:  # noqa: BLE001 - whatever a client makes of an answer, nobody waits for another
            get_logger().warning("mcp_answer_not_understood", call_id=question.call_id, kind=type(error).__name__)
            break
        try:
            await link.answer_question(answered(question.call_id, question.question_id, answer), caller)
        except SidecarRefusedError as error:
            if error.reason != "REQUEST_INVALID":
                return  # it has run out of time, or its call is over
            said = f"That was not taken ({error.message}).\n\n"
        else:
            return
    aside = answered(question.call_id, question.question_id, ElicitResult(action="cancel"))
    try:
        await link.answer_question(aside, caller)
    except SidecarRefusedError:
        return


def form_of(question: tool_pb2.ToolQuestion) -> ElicitRequestFormParams:
    """The form, with a message that says who asks."""
    schema = json.loads(question.schema_json) if question.schema_json else _NOTHING
    return ElicitRequestFormParams(message=f"{question.tool} asks: {question.message}", requested_schema=schema)


def request_of(question: tool_pb2.ToolQuestion) -> ElicitRequest:
    """What an `input_required` result asks (2026-07-28)."""
    return ElicitRequest(params=form_of(question))


def answered(call_id: str, question_id: str, answer: ElicitResult) -> pb.AnswerQuestionRequest:
    """What the sidecar is told."""
    content = json.dumps(answer.content) if answer.action == "accept" and answer.content else ""
    return pb.AnswerQuestionRequest(
        call_id=call_id, question_id=question_id, action=_ACTIONS[answer.action], content_json=content
    )
