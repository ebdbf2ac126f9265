from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_server.rpc.send_queue import MAX_COMBINED, MAX_COMBINED_BYTES, MAX_QUEUED_UPDATES, SendQueue
from fumehood_server.rpc.session import MAX_COMBINED_REQUESTS
from fumehood_server.rpc.unread import UnreadAnswers

from tests.rpc.support import BOUND_S, POLL_S, call, text_of
from tests.sidecar import Sidecar, running_sidecar

LONG = 400_000
"""Characters of an answer that is not written before somebody reads: a stream takes some 100 KB unread."""


def _nobody(peer: str) -> None:
    raise AssertionError(f"no connection is to be closed, and {peer} was")


Session = grpc.aio.StreamStreamCall[pb.SessionRequest, pb.SessionResponse]


def asked(tool: str, arguments: dict[str, object] | None = None, **fields: str) -> pb.SessionRequest:
    return pb.SessionRequest(call=call(tool, arguments, **fields))


def combined(*requests: pb.SessionRequest, accepts: bool = False) -> pb.SessionRequest:
    return pb.SessionRequest(combined=pb.SessionRequests(requests=requests), accepts_combined=accepts)


def apart(message: pb.SessionResponse) -> Iterator[pb.SessionResponse]:
    """What a message says, which is one response or several."""
    if message.HasField("combined"):
        assert len(message.combined.responses) > 1
        for response in message.combined.responses:
            assert not response.HasField("combined")
            yield response
    else:
        yield message


async def rest(session: Session) -> list[pb.SessionResponse]:
    await session.done_writing()
    messages = []
    while (message := await session.read()) is not grpc.aio.EOF:
        messages.append(message)
    return messages


async def until_ended(sidecar: Sidecar, *call_ids: str) -> None:
    """Return once the log has the line of each call. Their answers are ready then."""
    async with asyncio.timeout(BOUND_S):
        while not {*call_ids} <= {line["call_id"] for line in sidecar.log() if "call_id" in line}:  # noqa: ASYNC110 - the log tells nobody
            await asyncio.sleep(POLL_S)


async def fifty_unread(
    session: Session, sidecar: Sidecar, name: str, *, accepts: bool = False
) -> list[pb.SessionResponse]:
    """The messages with fifty answers, all ready before one is read: a long one is being written meanwhile."""
    before, names = f"{name}-before", [f"{name}-{i}" for i in range(50)]
    await session.write(asked("shout", {"size": LONG}, call_id=before))
    await until_ended(sidecar, before)
    await session.write(combined(*(asked("echo", {"text": each}, call_id=each) for each in names), accepts=accepts))
    await until_ended(sidecar, *names)
    long, *messages = await rest(session)
    assert long.finished.call_id == before
    answers = [answer.finished for message in messages for answer in apart(message)]
    assert sorted(answer.call_id for answer in answers) == sorted(names)
    assert all(text_of(answer) == answer.call_id for answer in answers)
    return messages


async def test_combined_requests_are_each_answered_once_and_apart_unless_it_was_asked(tools: ToolServiceStub) -> None:
    session = tools.Session(timeout=BOUND_S)
    await session.write(combined(*(asked("echo", {"text": f"{i}"}, call_id=f"{i}") for i in range(50))))
    answers = await rest(session)
    assert sorted(int(answer.finished.call_id) for answer in answers) == list(range(50))
    assert all(text_of(answer.finished) == answer.finished.call_id for answer in answers)


async def test_answers_that_are_ready_together_travel_together_where_that_is_accepted(
    tools: ToolServiceStub, sidecar: Sidecar
) -> None:
    session = tools.Session(timeout=BOUND_S)
    assert len(await fifty_unread(session, sidecar, "together", accepts=True)) < 50


async def test_answers_that_are_ready_together_travel_apart_where_nobody_accepts_it(
    tools: ToolServiceStub, sidecar: Sidecar
) -> None:
    session = tools.Session(timeout=BOUND_S)
    assert len(await fifty_unread(session, sidecar, "apart")) == 50


async def test_a_request_of_its_own_may_accept_combined_answers_too(tools: ToolServiceStub, sidecar: Sidecar) -> None:
    session = tools.Session(timeout=BOUND_S)
    first = asked("echo", {"text": "first"})
    first.accepts_combined = True
    await session.write(first)
    assert text_of((await session.read()).finished) == "first"
    assert len(await fifty_unread(session, sidecar, "own")) < 50


async def test_accepting_combined_answers_may_come_before_any_request(tools: ToolServiceStub, sidecar: Sidecar) -> None:
    session = tools.Session(timeout=BOUND_S)
    await session.write(pb.SessionRequest(accepts_combined=True))
    assert len(await fifty_unread(session, sidecar, "early")) < 50


async def test_combined_message_without_a_request_is_refused(tools: ToolServiceStub) -> None:
    session = tools.Session(timeout=BOUND_S)
    await session.write(combined(accepts=True))
    (message,) = await rest(session)
    assert (message.refused.call_id, message.refused.error.code) == ("", "REQUEST_INVALID")


async def test_what_is_within_a_combined_request_accepts_nothing(tools: ToolServiceStub) -> None:
    requests = [asked("echo", {"text": f"{i}"}) for i in range(50)]
    requests[0].accepts_combined = True
    session = tools.Session(timeout=BOUND_S)
    await session.write(combined(*requests))
    messages = await rest(session)
    assert len(messages) == 50
    assert all(message.HasField("finished") for message in messages)


async def test_as_many_requests_as_one_message_may_combine(tools: ToolServiceStub) -> None:
    session = tools.Session(timeout=BOUND_S)
    await session.write(combined(*(asked("echo", {"text": f"{i}"}, call_id=f"{i}") for i in range(128))))
    answers = await rest(session)
    assert MAX_COMBINED_REQUESTS == 128
    assert sorted(int(answer.finished.call_id) for answer in answers) == list(range(128))


async def test_more_are_refused_whole_and_the_session_goes_on(tools: ToolServiceStub) -> None:
    session = tools.Session(timeout=BOUND_S)
    await session.write(combined(*(asked("echo", {"text": f"{i}"}, call_id=f"{i}") for i in range(129))))
    await session.write(asked("echo", {"text": "next"}, call_id="next"))
    refused, finished = await rest(session)
    assert (refused.refused.call_id, refused.refused.error.code) == ("", "REQUEST_INVALID")
    assert "128 requests" in refused.refused.error.message
    assert refused.refused.kind == pb.SESSION_REQUEST_KIND_UNSPECIFIED
    assert refused.refused.status_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert text_of(finished.finished) == "next"


async def test_requests_combined_within_others_are_refused_and_their_neighbours_are_not(tools: ToolServiceStub) -> None:
    session = tools.Session(timeout=BOUND_S)
    inner = combined(asked("echo", {"text": "inner"}, call_id="inner"))
    neighbours = [asked("echo", {"text": name}, call_id=name) for name in ("before", "after")]
    await session.write(combined(neighbours[0], inner, neighbours[1]))
    answers = await rest(session)
    assert {answer.finished.call_id for answer in answers if answer.HasField("finished")} == {"before", "after"}
    (refusal,) = [answer.refused for answer in answers if answer.HasField("refused")]
    assert (refusal.call_id, refusal.error.code) == ("", "REQUEST_INVALID")


@pytest.mark.parametrize("accepts", [False, True])
async def test_each_refusal_within_names_its_own_call(tools: ToolServiceStub, *, accepts: bool) -> None:
    session = tools.Session(timeout=BOUND_S)
    requests = [
        asked("wait", {"seconds": 0.3}, call_id="same"),
        asked("echo", {"text": "x"}, call_id="same"),
        asked("", call_id="no-tool"),
        pb.SessionRequest(),
        pb.SessionRequest(cancel=pb.CancelCallRequest(call_id="nobody")),
    ]
    await session.write(combined(*requests, accepts=accepts))
    answers = [answer for message in await rest(session) for answer in apart(message)]
    refusals = [answer.refused for answer in answers if answer.HasField("refused")]
    assert [(refused.call_id, refused.error.code, refused.kind) for refused in refusals] == [
        ("same", "CALL_ID_IN_USE", pb.SESSION_REQUEST_KIND_CALL),
        ("no-tool", "REQUEST_INVALID", pb.SESSION_REQUEST_KIND_CALL),
        ("", "REQUEST_INVALID", pb.SESSION_REQUEST_KIND_UNSPECIFIED),
        ("nobody", "CALL_NOT_FOUND", pb.SESSION_REQUEST_KIND_CANCEL),
    ]
    (finished,) = [answer.finished for answer in answers if answer.HasField("finished")]
    assert (finished.call_id, text_of(finished)) == ("same", "waited")


async def test_a_combined_cancel_reaches_the_call_before_it(tools: ToolServiceStub) -> None:
    session = tools.Session(timeout=BOUND_S)
    cancel = pb.SessionRequest(cancel=pb.CancelCallRequest(call_id="brief"))
    await session.write(combined(asked("wait", {"seconds": 60}, call_id="brief"), cancel))
    assert (await session.read()).finished.error.code == "CANCELLED_SIGNAL"
    assert await rest(session) == []


async def test_updates_keep_their_place_among_combined_answers(tools: ToolServiceStub) -> None:
    session = tools.Session(timeout=BOUND_S)
    loud = [asked("chatter", {"count": 5}, call_id=f"loud-{i}") for i in range(4)]
    for request in loud:
        request.updates = True
    await session.write(combined(*loud, accepts=True))
    answers = [answer for message in await rest(session) for answer in apart(message)]
    for request in loud:
        call_id = request.call.call_id
        mine = [
            answer.update.sequence if answer.HasField("update") else "finished"
            for answer in answers
            if call_id in (answer.update.call_id, answer.finished.call_id)
        ]
        assert mine == [1, 2, 3, 4, 5, "finished"]


async def test_large_answers_are_not_combined_beyond_what_any_client_takes(
    tools: ToolServiceStub, sidecar: Sidecar
) -> None:
    session = tools.Session(timeout=BOUND_S)
    sizes = [LONG, *[50_000] * 12, *[10] * 30]
    names = [f"large-{i}" for i in range(len(sizes))]
    loud = (asked("shout", {"size": size}, call_id=name) for name, size in zip(names, sizes, strict=True))
    await session.write(combined(*loud, accepts=True))
    await until_ended(sidecar, *names)
    messages = await rest(session)
    answers = [answer for message in messages for answer in apart(message)]
    assert [answer.finished.error.message for answer in answers if answer.finished.is_error] == []
    assert sorted(len(text_of(answer.finished)) for answer in answers) == sorted(sizes)
    assert all(m.ByteSize() < MAX_COMBINED_BYTES + 4096 for m in messages if m.HasField("combined"))
    assert any(message.HasField("combined") for message in messages)


async def test_sessions_whose_readers_leave_without_reading_hold_nothing_afterwards(plugin_folder: Path) -> None:
    with running_sidecar([plugin_folder]) as sidecar:
        async with sidecar.channel() as channel:
            tools = ToolServiceStub(channel)
            process, held = psutil.Process(sidecar.process.pid), []
            for number in range(3):
                session = tools.Session()
                loud = (asked("shout", {"size": 200_000}, call_id=f"{number}-{i}") for i in range(100))
                await session.write(combined(*loud, accepts=True))
                async with asyncio.timeout(BOUND_S):
                    while len([line for line in sidecar.log() if line.get("tool") == "shout"]) < (number + 1) * 100:  # noqa: ASYNC110 - the log tells nobody
                        await asyncio.sleep(0.05)
                session.cancel()
                await tools.CallTool(call("echo", {"text": "x"}), timeout=BOUND_S)
                held.append(process.memory_info().rss)
            assert held[-1] - held[0] < 80 * 1024 * 1024, "each had 40 MiB of answers"
        assert [line for line in sidecar.log() if line.get("level") == "error"] == []
        assert "Traceback" not in sidecar.stderr()


def _answer(text: str) -> pb.SessionResponse:
    refused = pb.SessionRefusal(call_id=text)
    return pb.SessionResponse(refused=refused)


def _said(message: pb.SessionResponse) -> list[str]:
    return [answer.refused.call_id for answer in apart(message)]


async def test_one_message_takes_so_many_answers_and_no_more() -> None:
    queue = SendQueue(UnreadAnswers(_nobody), "unix:")
    queue.combine = True
    for number in range(MAX_COMBINED + 2):
        queue.put_answer(_answer(str(number)))
    assert _said(queue.take_message()) == [str(number) for number in range(MAX_COMBINED)]
    assert _said(queue.take_message()) == [str(MAX_COMBINED), str(MAX_COMBINED + 1)]
    assert not queue


async def test_an_answer_that_would_not_fit_waits_for_the_next_message() -> None:
    queue = SendQueue(UnreadAnswers(_nobody), "unix:")
    queue.combine = True
    large = "x" * (MAX_COMBINED_BYTES - 1000)
    for text in ("a", large, "b" * 2000, large * 2, "c", "d"):
        queue.put_answer(_answer(text))
    assert [_said(queue.take_message()) for _ in range(4)] == [["a", large], ["b" * 2000], [large * 2], ["c", "d"]]
    assert not queue


async def test_updates_that_nobody_takes_are_bounded_and_take_their_place_again_combined() -> None:
    queue = SendQueue(UnreadAnswers(_nobody), "unix:")
    queue.combine = True
    while queue.takes_updates:
        queue.put_update(_answer("u"))
    assert len(queue) == MAX_QUEUED_UPDATES
    queue.take_message()
    assert queue.takes_updates
    assert not queue


async def test_who_waits_for_fewer_answers_goes_on_once_they_were_taken_combined() -> None:
    queue = SendQueue(UnreadAnswers(_nobody), "unix:")
    queue.combine = True
    while not queue.is_full:
        queue.put_answer(_answer("x"))
    waiting = asyncio.create_task(queue.until_not_full())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.take_message()
    await asyncio.wait_for(waiting, BOUND_S)
    assert not queue.is_full
