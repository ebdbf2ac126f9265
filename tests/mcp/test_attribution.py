"""Which call a server's message is for: what one call's server says late reaches no other call's caller."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fumehood.v1 import plugin_pb2 as pb
from fumehood.v1 import tool_pb2

from tests.mcp.direct import DirectEngine, direct_engine

CODE = """
import json, sys
METHOD, PARAMS = %r, %r
def send(said):
    print(json.dumps({"jsonrpc": "2.0", **said}), flush=True)
def answer(number, text):
    send({"id": number, "result": {"content": [{"type": "text", "text": text}]}})
ignored, asking = [], None
for line in sys.stdin:
    got = json.loads(line)
    method, number = got.get("method"), got.get("id")
    if method == "initialize":
        send({"id": number, "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}})
    elif method == "tools/list":
        tools = ("ignore", "ask", "catch_up", "progress")
        send({"id": number, "result": {"tools": [{"name": each} for each in tools]}})
    elif method == "tools/call":
        tool, token = got["params"]["name"], got["params"]["_meta"]["progressToken"]
        if tool == "ignore":
            ignored.append((number, token))
        elif tool == "ask":
            asking = number
            send({"id": "ask", "method": METHOD, "params": PARAMS})
        elif tool == "catch_up":
            for late, _ in ignored:
                answer(late, "late")
            answer(number, "caught up")
        elif tool == "progress":
            for _, late in ignored:
                progress = {"progressToken": late, "progress": 1, "message": "of another"}
                send({"method": "notifications/progress", "params": progress})
            answer(number, "done")
    elif method is None and asking is not None:
        answer(asking, json.dumps(got.get("error") or got.get("result")))
    elif number is not None:
        send({"id": number, "error": {"code": -32601, "message": "no method"}})
"""
FORM = {"message": "Your password?", "requestedSchema": {"type": "object", "properties": {"p": {"type": "string"}}}}
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "Your secret?"}}], "maxTokens": 8}
REQUESTS = pytest.mark.parametrize(
    ("method", "params"),
    [("elicitation/create", FORM), ("sampling/createMessage", SAMPLE)],
    ids=["elicitation", "sampling"],
)


def asks_and_is_answered(engine: DirectEngine) -> bool:
    """Whether the call that asks is the one whose caller is asked."""
    number = engine.begin("ask")
    frame = engine.read()
    if frame.HasField("update"):
        assert "call_unknown" not in frame.update.message
    for field in ("question", "inference_request"):
        if frame.HasField(field):
            asked = getattr(frame, field)
            assert asked.invocation_id == number
            engine.send(answer_to(asked))
            frame = engine.read()
            assert json.loads(frame.result.content[0].text).get("code") is None
            return True
    assert frame.HasField("result"), frame
    said = json.loads(frame.result.content[0].text)
    assert "call_unknown" in said["message"]
    return False


def answer_to(asked: pb.Question | pb.InferenceRequest) -> pb.HostFrame:
    if isinstance(asked, pb.Question):
        answer = pb.Answer(
            invocation_id=asked.invocation_id, request_id=asked.request_id, action=tool_pb2.ANSWER_ACTION_DECLINE
        )
        return pb.HostFrame(answer=answer)
    response = pb.InferenceResponse(invocation_id=asked.invocation_id, request_id=asked.request_id, text="blue")
    return pb.HostFrame(inference_response=response)


@REQUESTS
def test_what_a_server_asks_that_has_not_answered_a_cancelled_call_reaches_nobody_until_it_has(
    tmp_path: Path, method: str, params: object
) -> None:
    with direct_engine(tmp_path, CODE % (method, params)) as engine:
        assert asks_and_is_answered(engine)
        ignored = engine.begin("ignore")
        assert engine.give_up(ignored).error.reason == "cancelled"
        assert not asks_and_is_answered(engine)
        assert not asks_and_is_answered(engine)
        assert engine.call("catch_up").content[0].text == "caught up"
        assert asks_and_is_answered(engine)


def test_request_over_http_that_came_by_no_calls_stream_reaches_nobody(tmp_path: Path) -> None:
    with direct_engine(tmp_path, CODE % ("elicitation/create", FORM), is_remote=True) as engine:
        assert not asks_and_is_answered(engine)
    with direct_engine(tmp_path, CODE % ("elicitation/create", FORM)) as engine:
        assert asks_and_is_answered(engine)


def test_late_progress_of_a_cancelled_call_reaches_nobody(tmp_path: Path) -> None:
    with direct_engine(tmp_path, CODE % ("elicitation/create", FORM)) as engine:
        ignored = engine.begin("ignore")
        beside = engine.begin("progress")
        frame = engine.read()
        assert (frame.update.invocation_id, frame.update.message) == (ignored, "of another")
        assert engine.read().result.invocation_id == beside
        engine.give_up(ignored)
        number = engine.begin("progress")
        frame = engine.read()
        assert frame.HasField("result"), frame
        assert frame.result.invocation_id == number


ROUNDS = """
import json, sys
def send(said):
    print(json.dumps({"jsonrpc": "2.0", **said}), flush=True)
for line in sys.stdin:
    got = json.loads(line)
    method, number = got.get("method"), got.get("id")
    if method == "server/discover":
        send({"id": number, "result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}})
    elif method == "tools/list":
        send({"id": number, "result": {"tools": [{"name": "rounds"}]}})
    elif method == "tools/call":
        meta = got["params"]["_meta"]
        seen = json.loads(got["params"].get("requestState", "[]"))
        seen.append([meta.get("traceparent"), meta.get("tracestate")])
        if len(seen) < 3:
            result = {"resultType": "input_required", "requestState": json.dumps(seen)}
            if len(seen) == 1:
                result["inputRequests"] = {"r": {"method": "roots/list"}}
        else:
            result = {"resultType": "complete", "content": [{"type": "text", "text": json.dumps(seen)}]}
        send({"id": number, "result": result})
"""


def test_each_round_of_a_call_has_the_calls_trace(tmp_path: Path) -> None:
    parent, state = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b"
    with direct_engine(tmp_path, ROUNDS) as engine:
        result = engine.call("rounds", traceparent=parent, tracestate=state)
        assert json.loads(result.content[0].text) == [[parent, state]] * 3
        assert json.loads(engine.call("rounds").content[0].text) == [[None, None]] * 3
