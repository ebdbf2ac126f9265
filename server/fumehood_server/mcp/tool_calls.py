"""`tools/call`: a call of the sidecar's StreamTool or CallTool, with updates, cancellation and approval."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Mapping
from typing import Any

import anyio
from fumehood.v1 import approval_service_pb2 as approval_pb
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fumehood_server.mcp import approvals
from fumehood_server.mcp.call_events import APPROVING, CallEvents
from fumehood_server.mcp.callers import McpCaller
from fumehood_server.mcp.log_levels import LogLevels
from fumehood_server.mcp.open_calls import OpenCalls
from fumehood_server.mcp.questions import answered, ask, request_of
from fumehood_server.mcp.request_meta import call_context, given_id
from fumehood_server.mcp.request_state import RequestState, digest_of
from fumehood_server.mcp.results import Json, call_result, protocol_error
from fumehood_server.mcp.sidecar_link import SidecarLink, SidecarRefusedError
from fumehood_server.mcp.tool_list import ToolList
from fumehood_server.validation import json_in_parts

_QUESTION = "approval"
"""Names the one question in an `input_required` result, and its answer in the request that follows."""

CANCEL_TIMEOUT_S = 5.0
"""To have a call cancelled whose client has gone away."""

_Context = ServerRequestContext[Any, Any]


class ToolCalls:
    """Answers `tools/call` for all clients. For one event loop."""

    __slots__ = ("_approving", "_levels", "_link", "_open", "_tools")

    def __init__(self, link: SidecarLink, tools: ToolList, levels: LogLevels, approving: str = APPROVING) -> None:
        """No call is under way. `approving` says how one is approved elsewhere than at the client."""
        self._approving = approving
        self._link = link
        self._tools = tools
        self._levels = levels
        self._open = OpenCalls()

    async def answer(
        self, context: _Context, params: CallToolRequestParams, caller: McpCaller
    ) -> Json | InputRequiredResult:
        """Call the tool. Cancelling this cancels the call.

        Raises:
            MCPError: there is no such tool, or the request was refused before anything ran.
        """
        try:
            if not await self._tools.offers(params.name, caller):
                raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
            arguments_json = await _arguments_json(params.arguments)
            key = self._open.key(params.name, arguments_json)
            state = RequestState.read(params.request_state) if params.request_state is not None else None
            given = state.call_id if state is not None else given_id(context)
            request = pb.CallToolRequest(
                tool=params.name,
                arguments_json=arguments_json,
                call_id=given or self._open.find(caller, key) or f"mcp-{secrets.token_hex(16)}",
                context=call_context(context),
                return_if_approval_required=True,
            )
            if state is not None:
                state.check(request)
            decided = "" if state is None else await self._take_decision(state, params, caller)
            responses = params.input_responses or {}
            result = await self._run(request, context, caller, joins=bool(given), responses=responses)
            if isinstance(result, InputRequiredResult):
                return result
            if _waits(result):
                self._open.keep(caller, key, request.call_id)
                asked = await self._ask(request, result, context, caller, decided)
                if isinstance(asked, InputRequiredResult):
                    return asked
                result = asked
            if not _waits(result):
                self._open.forget(caller, key)
        except SidecarRefusedError as error:
            raise protocol_error(error) from error
        answer = call_result(result, context.protocol_version)
        if _waits(result):
            answer["content"].append({"type": "text", "text": _how_to_come_back(result, self._approving)})
        return answer

    async def _run(
        self,
        request: pb.CallToolRequest,
        context: _Context,
        caller: McpCaller,
        *,
        joins: bool,
        responses: Mapping[str, object],
    ) -> tool_pb2.ToolResult | InputRequiredResult:
        """The call's result, or what its tool asks the client first.

        `joins`: whether one of this id may be under way, which only a stream joins. `responses` are the client's
        answers to questions of these names (2026-07-28).
        """
        events = CallEvents(context, request.tool, self._levels, self._approving)
        stateless = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        request.takes_questions = approvals.can_be_asked(context.session.client_capabilities) and (
            stateless or context.session.can_send_request
        )
        if not (joins or events.wanted or request.takes_questions):
            return await self._link.call_tool(request, caller)
        if not (stateless and request.takes_questions):
            return await self._followed(request, context, events, caller, {})
        # The call goes on beyond this request, which ends with the tool's question. It ends where the client goes away.
        request.continue_if_disconnected = True
        try:
            return await self._followed(request, context, events, caller, responses)
        except asyncio.CancelledError:
            with anyio.move_on_after(CANCEL_TIMEOUT_S, shield=True), contextlib.suppress(SidecarRefusedError):
                await self._link.cancel_call(request.call_id, caller)
            raise

    async def _followed(
        self,
        request: pb.CallToolRequest,
        context: _Context,
        events: CallEvents,
        caller: McpCaller,
        responses: Mapping[str, object],
    ) -> tool_pb2.ToolResult | InputRequiredResult:
        """As `_run`, from the call's stream."""
        asked: list[asyncio.Task[None]] = []
        taken: set[str] = set()
        try:
            async with contextlib.aclosing(self._link.stream_tool(request, caller)) as stream:
                async for event in stream:
                    match event.WhichOneof("event"):
                        case "finished":
                            return event.finished
                        case "question" if event.question.question_id in taken:
                            continue  # told once more, since the call was joined meanwhile
                        case "question" if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
                            if not await self._answer_question(event.question, responses, caller):
                                return _input_required(event.question, request)
                            taken.add(event.question.question_id)
                        case "question":  # beside the stream, which may end before somebody answers
                            asking = ask(event.question, context, self._link, caller)
                            asked.append(asyncio.create_task(asking))
                        case _:
                            await events.tell(event)
        finally:
            for each in asked:
                each.cancel()
            if asked:
                # A scope that is cancelled cancels each wait in it, and would leave them behind. They end within the
                # seconds that the SDK takes to tell a client that it is asked no more.
                with anyio.CancelScope(shield=True):
                    await asyncio.wait(asked)
        raise MCPError(INVALID_PARAMS, "the sidecar ended the call's stream without a result")

    async def _ask(
        self,
        request: pb.CallToolRequest,
        result: tool_pb2.ToolResult,
        context: _Context,
        caller: McpCaller,
        decided_id: str,
    ) -> tool_pb2.ToolResult | InputRequiredResult:
        """Have the client asked, where its answer would count: what came of the call then, or the question.

        `decided_id`: the approval that this request brings an answer about, which isn't asked about again. Empty: none.
        """
        approval_id = json.loads(result.error.details_json or "{}").get("approval_id", "")
        if approval_id == decided_id or not approvals.can_be_asked(context.session.client_capabilities):
            return result
        approval = await self._link.approval(approval_id, caller)
        if approval is None or not approvals.may_decide(approval):
            return result
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            form = ElicitRequestFormParams(message=approvals.question(approval), requested_schema=approvals.QUESTION)
            return InputRequiredResult(
                input_requests={_QUESTION: ElicitRequest(params=form)},
                request_state=RequestState(request.call_id, digest_of(request), approval_id, approval.digest).text(),
            )
        decided = await approvals.ask(context, approval)
        if decided is None or not await self._decide(decided, caller):
            return result
        return await self._run(request, context, caller, joins=True, responses={})

    async def _answer_question(
        self, question: tool_pb2.ToolQuestion, responses: Mapping[str, object], caller: McpCaller
    ) -> bool:
        """Hand on the client's answer to a question. False: it gave none that fits, so that it has to be asked."""
        answer = responses.get(question.question_id)
        if not isinstance(answer, ElicitResult):
            return False
        try:
            await self._link.answer_question(answered(question.call_id, question.question_id, answer), caller)
        except SidecarRefusedError as error:
            return error.reason == "QUESTION_NOT_FOUND"  # it has run out of time, or was answered meanwhile
        return True

    async def _take_decision(self, state: RequestState, params: CallToolRequestParams, caller: McpCaller) -> str:
        """Hand on what the request answers about an approval. Returns the approval; empty: it was asked about none."""
        answer = (params.input_responses or {}).get(_QUESTION)
        if not state.approval_id or not isinstance(answer, ElicitResult):
            return ""
        decided = approvals.decision(state.approval_id, state.digest, answer)
        if decided is not None:
            await self._decide(decided, caller)
        return state.approval_id

    async def _decide(self, decided: approval_pb.DecideApprovalRequest, caller: McpCaller) -> bool:
        """Whether the sidecar took the decision. Where it did not, the call says where it stands."""
        try:
            await self._link.decide(decided, caller)
        except SidecarRefusedError as error:
            if error.retryable or error.reason == "UNAUTHENTICATED":
                raise
            return False
        return True


def _input_required(question: tool_pb2.ToolQuestion, request: pb.CallToolRequest) -> InputRequiredResult:
    state = RequestState(question.call_id, digest_of(request), question_id=question.question_id)
    return InputRequiredResult(input_requests={question.question_id: request_of(question)}, request_state=state.text())


def _waits(result: tool_pb2.ToolResult) -> bool:
    return result.is_error and result.error.code == "TOOL_APPROVAL_REQUIRED"


def _how_to_come_back(result: tool_pb2.ToolResult, approving: str) -> str:
    approval_id = json.loads(result.error.details_json or "{}").get("approval_id", "")
    return (
        f"Nothing has run. Somebody who may approve it decides on {approval_id} ({approving}). Then "
        f"call {result.tool} again with the same arguments."
    )


async def _arguments_json(arguments: Mapping[str, Any] | None) -> str:
    """JSON text of the arguments. What is no JSON, such as NaN, stays so, and the sidecar refuses it."""
    if arguments and json_in_parts.is_long(arguments):
        with contextlib.suppress(ValueError):  # what is no JSON, or half a surrogate pair
            text = await asyncio.to_thread(json_in_parts.write, arguments)
            text.encode()
            return text
    text = json.dumps(arguments or {}, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return json.dumps(arguments or {}, separators=(",", ":"))
    return text
