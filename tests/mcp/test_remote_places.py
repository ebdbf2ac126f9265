"""More calls than there are places, on a server over HTTP: what they wait for has places of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fumehood_sdk.adapters.mcp.remote import REQUEST_KEY
from fumehood_sdk.adapters.mcp.remote.main import MAX_CALLS

from tests.mcp.remote_process import RemoteProcess, remote_process

CALLS = 40
"""More than a process has under way by default."""


@pytest.fixture
def remote() -> Iterator[RemoteProcess]:
    with remote_process() as made:
        yield made


def test_calls_that_all_ask_are_all_answered(remote: RemoteProcess) -> None:
    numbers = range(100, 100 + CALLS)
    for number in numbers:
        remote.call(number)
    done: list[int] = []
    asked: list[dict[str, Any]] = []
    while len(done) < CALLS:
        message = remote.read()
        if "id" not in message:
            continue
        if "method" in message:
            asked.append(message)
        else:
            done.append(message["id"])
        if len(asked) == min(MAX_CALLS, CALLS - len(done)):  # each place has a call that waits
            while asked:
                remote.answer(asked.pop())
    assert sorted(done) == list(numbers)


def test_call_that_waits_for_a_place_is_let_go_and_a_list_needs_none(remote: RemoteProcess) -> None:
    for number in range(100, 100 + MAX_CALLS):
        remote.call(number)
    asked = [remote.read_question() for _ in range(MAX_CALLS)]
    remote.call(500)
    remote.call(501)
    remote.send(method="notifications/cancelled", params={"requestId": 500})
    cancelled = remote.read()
    assert (cancelled["id"], cancelled["error"]["message"]) == (500, "it was cancelled before it was sent")
    remote.send(id=600, method="tools/list")
    assert remote.read()["id"] == 600
    remote.answer(asked[0])
    later = [remote.read(), remote.read(), remote.read()]
    assert [each.get("method") for each in later].count("elicitation/create") == 1
    assert 501 in remote.called
    assert 500 not in remote.called


def test_what_a_resumed_stream_repeats_of_another_reaches_nobody_and_its_own_its_call(remote: RemoteProcess) -> None:
    """The official server `everything` keeps the events of all streams in one list, and replays all of them."""
    remote.call(100, "cut")
    alone = remote.read_question()
    assert (alone["id"], alone[REQUEST_KEY]) == ("ask-100", 100)
    remote.answer(alone)
    assert remote.read()["id"] == 100
    remote.call(101)
    beside = remote.read_question()
    assert (beside["id"], beside[REQUEST_KEY]) == ("ask-101", 101)
    remote.call(102, "cut")
    told = [remote.read(), remote.read()]
    assert [each.get("id") or each["params"]["progressToken"] for each in told] == [102, "ask-102"]
    assert told[1][REQUEST_KEY] is None  # it may be of the one beside
    remote.answer(told[1])
    assert remote.read()["id"] == 102
    remote.answer(beside)
    assert remote.read()["id"] == 101


def test_request_that_got_no_answer_keeps_others_questions_from_their_calls_only_in_its_session(
    remote: RemoteProcess,
) -> None:
    remote.call(100)
    remote.read_question()
    remote.send(method="notifications/cancelled", params={"requestId": 100})
    assert "error" in remote.read()
    remote.call(101, "cut")
    doubtful = remote.read_question()
    assert doubtful["id"] == "ask-101"
    assert doubtful[REQUEST_KEY] is None  # control: the server may still run the one before
    remote.answer(doubtful)
    assert remote.read()["id"] == 101
    remote.end_session()
    remote.call(102, "cut")
    alone = remote.read_question()
    assert (alone["id"], alone[REQUEST_KEY]) == ("ask-102", 102)
    remote.answer(alone)
    assert remote.read()["id"] == 102
