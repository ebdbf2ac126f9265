"""What a server asks of its client: roots are the grants, the rest is refused by name, and the caller sees it."""

from __future__ import annotations

import json

import pytest
from fumehood.v1 import tool_service_pb2 as pb

from tests.mcp.conftest import Hosted
from tests.mcp.support import Caller, reason

REVISIONS = pytest.mark.parametrize("prefix", ["", "new_"], ids=["2025-11-25", "2026-07-28"])
REFUSED = pytest.mark.parametrize(
    ("method", "what"), [("sampling/createMessage", "sampling"), ("elicitation/create", "elicitation")]
)
QUESTION = {
    "method": "elicitation/create",
    "message": "Which colour?",
    "requested_schema": {
        "type": "object",
        "additionalProperties": False,
        "properties": {"colour": {"type": "string", "description": "Text."}},
    },
}


@REVISIONS
async def test_roots_are_the_granted_folders(caller: Caller, hosted: Hosted, prefix: str) -> None:
    text = await caller.text(f"{prefix}ask_client", method="roots/list")
    found = json.loads(text)
    roots = found["it"]["roots"] if prefix else found["result"]["roots"]
    assert {root["uri"] for root in roots} == {f"file://{hosted.readable}", f"file://{hosted.writable}"}


@REVISIONS
@REFUSED
async def test_call_that_fails_for_what_it_was_refused_says_what_that_was(
    caller: Caller, prefix: str, method: str, what: str
) -> None:
    result = await caller.call(f"{prefix}ask_client", method=method, or_fail=True)
    assert reason(result) == f"{what}_refused"
    assert f"asks its client for {what}, which is refused" in result.error.message
    (asked,) = json.loads(result.error.details_json)["requests"]
    assert asked.pop("refused") == ("nobody_to_ask" if what == "elicitation" else "engine_not_granted")
    assert asked.pop("problem")
    assert asked == (QUESTION if what == "elicitation" else {"method": method})
    assert (await caller.call(f"{prefix}ask_client", method="roots/list", or_fail=True)).is_error is False


@REFUSED
async def test_server_that_can_do_without_is_told_by_name_and_its_call_by_an_update(
    caller: Caller, method: str, what: str
) -> None:
    request = pb.CallToolRequest(tool="ask_client", arguments_json=json.dumps({"method": method}))
    events = [event async for event in caller.stub.StreamTool(pb.StreamToolRequest(call=request))]
    told = [event.update.message for event in events if event.HasField("update")]
    assert [f"asks its client for {what}, which is refused" in each for each in told] == [True]
    (finished,) = [event.finished for event in events if event.HasField("finished")]
    assert not finished.is_error
    assert f"{what} is refused" in json.loads(finished.content[0].text)["error"]["message"]


async def test_refusal_is_no_other_calls_where_several_are_under_way(caller: Caller) -> None:
    """In the revision 2025-11-25 a request doesn't say which call it is for."""
    stream = caller.stub.StreamTool(pb.StreamToolRequest(call=pb.CallToolRequest(tool="slow", call_id="beside")))
    events = aiter(stream)
    async for event in events:
        if event.HasField("update"):
            break
    result = await caller.call("ask_client", method="elicitation/create", or_fail=True)
    assert reason(result) == "tool_error"
    await caller.stub.CancelCall(pb.CancelCallRequest(call_id="beside"))
    told = [event.update.message async for event in events if event.HasField("update")]
    assert not [each for each in told if "asks its client" in each]
