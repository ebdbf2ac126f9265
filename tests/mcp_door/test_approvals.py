"""Calls that need an approval: by a form of the MCP client where the rules let a caller approve its own, else told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fumehood.v1 import approval_service_pb2 as pb
from fumehood.v1 import approval_service_pb2_grpc
from fumehood_server.mcp.callers import McpCaller
from fumehood_server.mcp.open_calls import MAX_OPEN, OpenCalls
from mcp.types import ElicitRequestFormParams, ElicitResult

from tests.callers.support import token_of
from tests.sidecar import Sidecar, running_sidecar

from .support import LEGACY, MODERN, MODES, error_of, http_client, modern, request, stdio_client, text_of, url_of

RULES = """
[mcp]
listen = "127.0.0.1:0"
[[policy.rule]]
name = "own-word"
permission = "require_approval"
tools = ["note"]
callers = ["owner"]
self_approval = true
[[caller]]
name = "owner"
tools = ["*"]
approve = ["note"]
[[caller]]
name = "agent"
tools = ["*"]
approve = ["note"]
[[caller]]
name = "stranger"
tools = ["*"]
"""


@pytest.fixture(scope="module")
def sidecar(plugin_folder: Path) -> Iterator[Sidecar]:
    with running_sidecar([(plugin_folder, 'max_side_effects = "write"')], more=RULES) as running:
        yield running


class Person:
    """Sits at a client and answers its forms."""

    def __init__(self, action: Any, **content: Any) -> None:
        self.answer = ElicitResult(action=action, content=content or None)
        self.asked: list[str] = []

    async def __call__(self, _context: object, params: object) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        self.asked.append(params.message)
        return self.answer


@pytest.mark.parametrize("mode", MODES)
async def test_a_caller_that_may_approve_its_own_calls_is_asked_by_a_form(sidecar: Sidecar, mode: str) -> None:
    url, owner = url_of(sidecar), token_of(sidecar.folder, "owner")
    yes, no = Person("accept", approve=True), Person("accept", approve=False)
    async with http_client(url, mode, owner, elicitation_callback=yes) as client:
        assert text_of(await client.call_tool("note", {"text": f"yes {mode}"})) == f"noted yes {mode}"
    (question,) = yes.asked
    assert '"note"' in question
    assert f'"text": "yes {mode}"' in question
    assert "level is write" in question
    async with http_client(url, mode, owner, elicitation_callback=no) as client:
        assert error_of(await client.call_tool("note", {"text": f"no {mode}"}))["code"] == "TOOL_DENIED"
    async with http_client(url, mode, owner, elicitation_callback=Person("decline")) as client:
        assert error_of(await client.call_tool("note", {"text": f"declined {mode}"}))["code"] == "TOOL_DENIED"
    async with http_client(url, mode, owner, elicitation_callback=Person("cancel")) as client:
        put_aside = error_of(await client.call_tool("note", {"text": f"later {mode}"}))
        assert put_aside["code"] == "TOOL_APPROVAL_REQUIRED"


@pytest.mark.parametrize("mode", MODES)
async def test_any_other_is_told_the_approval_and_comes_back_with_the_same_call(sidecar: Sidecar, mode: str) -> None:
    url, yes = url_of(sidecar), Person("accept", approve=True)
    agent = token_of(sidecar.folder, "agent")
    async with http_client(url, mode, agent, elicitation_callback=yes) as client:
        waits = await client.call_tool("note", {"text": f"told {mode}"})
        told = error_of(waits)
        assert told["code"] == "TOOL_APPROVAL_REQUIRED"
        approval_id = told["details"]["approval_id"]
        assert f"decides on {approval_id}" in "".join(getattr(each, "text", "") for each in waits.content)
        assert yes.asked == []
        again = error_of(await client.call_tool("note", {"text": f"told {mode}"}))
        assert again["details"]["approval_id"] == approval_id  # the same call, under the same id
        async with sidecar.channel() as channel:
            approvals = approval_service_pb2_grpc.ApprovalServiceStub(channel)
            (found,) = (await approvals.ListApprovals(pb.ListApprovalsRequest(approval_id=approval_id))).approvals
            assert (found.caller.name, found.caller.authenticated_by) == ("agent", "token")
            assert found.caller.connection.startswith("mcp:127.0.0.1:")
            choice = pb.APPROVAL_CHOICE_APPROVE
            await approvals.DecideApproval(
                pb.DecideApprovalRequest(approval_id=approval_id, choice=choice, digest=found.digest)
            )
        assert text_of(await client.call_tool("note", {"text": f"told {mode}"})) == f"noted told {mode}"
        fresh = error_of(await client.call_tool("note", {"text": f"told {mode}"}))  # another call, which runs once more
        assert fresh["details"]["approval_id"] != approval_id


async def test_over_stdio_without_a_name_the_person_at_the_machine_approves(sidecar: Sidecar) -> None:
    yes = Person("accept", approve=True)
    async with stdio_client(sidecar.target, LEGACY, elicitation_callback=yes) as client:
        assert text_of(await client.call_tool("note", {"text": "stdio"})) == "noted stdio"
        assert len(yes.asked) == 1
    async with stdio_client(sidecar.target, MODERN) as client:
        assert error_of(await client.call_tool("note", {"text": "no form"}))["code"] == "TOOL_APPROVAL_REQUIRED"


def test_the_answer_to_anothers_question_approves_nothing_and_tells_nothing(sidecar: Sidecar) -> None:
    url, owner = url_of(sidecar), token_of(sidecar.folder, "owner")
    forms = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    arguments = {"text": "the owner's"}

    def answered(token: str, **more: Any) -> dict[str, Any]:
        body, headers = modern("tools/call", name="note", arguments=arguments, meta=forms, **more)
        _, _, answer = request(url, body=body, Authorization=f"Bearer {token}", **headers)
        found: dict[str, Any] = json.loads(answer)
        return found

    def yes() -> dict[str, Any]:
        asked = answered(owner)["result"]
        assert asked["resultType"] == "input_required"
        given = {"approval": {"action": "accept", "content": {"approve": True}}}
        return {"requestState": asked["requestState"], "inputResponses": given}

    mine = yes()
    taken = answered(token_of(sidecar.folder, "stranger"), **mine)  # while it waits
    assert taken["error"]["data"]["code"] == "CALL_ID_IN_USE"
    assert answered(owner, **mine)["result"]["content"] == [{"type": "text", "text": "noted the owner's"}]
    again = answered(token_of(sidecar.folder, "stranger"), **mine)  # an outcome is there now
    assert again["error"]["data"]["code"] == "CALL_ID_IN_USE"


def test_the_open_calls_of_one_caller_push_out_nobody_elses() -> None:
    calls, one, other = OpenCalls(), McpCaller("one"), McpCaller("other")
    calls.keep(one, "first", "id-1")
    for index in range(MAX_OPEN + 1):
        calls.keep(other, str(index), f"id-{index}")
    assert (calls.find(one, "first"), calls.find(other, "0"), calls.find(other, "1")) == ("id-1", "", "id-1")
    calls.forget(one, "first")
    assert calls.find(one, "first") == ""
