"""Streams that a server over HTTP closes before their answer: resumed where it keeps events, an error where not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator

import pytest
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_sdk.adapters.mcp.remote.event_stream import StreamPosition
from fumehood_sdk.adapters.mcp.remote.resumption import MAX_FUTILE_TRIES, MAX_RESUMED_S, Resumption

from tests.mcp.support import Caller
from tests.mcp.test_remote import granted, remote_plugin, remote_server
from tests.sidecar import Sidecar, running_sidecar


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    with remote_server(program="resumable.py") as port:
        plugin = remote_plugin(tmp_path_factory.mktemp("remote") / "resumable", f"http://127.0.0.1:{port}/mcp")
        allowed = granted(port, "echo", "closes", "asks", secrets="")
        with running_sidecar([(plugin, allowed)]) as running:
            yield running


@pytest.fixture
async def caller(sidecar: Sidecar) -> AsyncIterator[Caller]:
    async with sidecar.channel() as channel:
        yield Caller(channel)


async def test_server_with_an_event_store_is_hosted(caller: Caller) -> None:
    assert sorted(await caller.tools()) == ["asks", "closes", "echo"]
    assert await caller.text("echo", text="primed") == "primed"


@pytest.mark.parametrize("futile", [0, MAX_FUTILE_TRIES - 1])
async def test_call_whose_stream_is_closed_keeps_its_updates_and_its_result_and_runs_once(
    caller: Caller, futile: int
) -> None:
    before = int(await caller.text("closes", futile=0))
    request = pb.CallToolRequest(tool="closes", arguments_json=json.dumps({"futile": futile}))
    updates, results = [], []
    async for event in caller.stub.StreamTool(pb.StreamToolRequest(call=request)):
        if event.HasField("update"):
            updates.append((event.update.message, event.update.progress))
        elif event.HasField("finished"):
            results.append(event.finished)
    assert updates == [("while it was closed", 1)]
    assert [each.content[0].text for each in results] == [str(before + 1)]


async def test_question_in_a_resumed_stream_is_its_callers(caller: Caller) -> None:
    request = pb.CallToolRequest(tool="asks", arguments_json="{}", takes_questions=True)
    async for event in caller.stub.StreamTool(pb.StreamToolRequest(call=request)):
        if event.HasField("question"):
            answer = pb.AnswerQuestionRequest(
                call_id=event.question.call_id,
                question_id=event.question.question_id,
                action=tool_pb2.ANSWER_ACTION_ACCEPT,
                content_json='{"colour": "red"}',
            )
            await caller.stub.AnswerQuestion(answer)
        elif event.HasField("finished"):
            assert event.finished.content[0].text == "red"
            return
    raise AssertionError("it ended without a result")


async def test_stream_that_no_try_brings_further_is_an_error_and_harms_no_other(caller: Caller) -> None:
    result = await caller.call("closes", futile=-1)
    assert result.error.code == "TOOL_EXECUTION_FAILED"
    assert "ended its stream without an answer" in result.error.message
    assert int(await caller.text("closes", futile=0)) > 1


def test_tries_are_as_far_apart_as_the_server_says_and_bounded_in_number_and_time() -> None:
    position = StreamPosition()
    assert Resumption(position, 0.0).next_delay_s(0.0) is None  # a server without ids
    position.last_event_id = b"1"
    futile = Resumption(position, 0.0)
    assert [futile.next_delay_s(0.0) for _ in range(MAX_FUTILE_TRIES + 1)] == [1.0] * MAX_FUTILE_TRIES + [None]
    for retry_ms, delay_s in ((0, 0.1), (2500, 2.5), (300_000, 300.0), (300_001, None)):
        position.retry_ms = retry_ms
        assert Resumption(position, 0.0).next_delay_s(0.0) == delay_s
    position.retry_ms = 1000
    polled = Resumption(position, 0.0)
    for number in range(100):
        position.last_event_id = b"%d" % number
        assert polled.next_delay_s(MAX_RESUMED_S - 1) == 1.0
    position.last_event_id = b"another"
    assert polled.next_delay_s(MAX_RESUMED_S) is None
