"""Calls that a response lists are cut, so that it fits what clients take and nothing of them holds the loop up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.answers import response_from_json, response_to_json
from fumehood_server.orchestration.happenings import KEPT_CHARS, HappeningLog, ToolFinished
from fumehood_server.orchestration.made_calls import MAX_CALLS_BYTES, MadeCalls
from fumehood_server.orchestration.response import SystemResponse
from fumehood_server.orchestration.result_bounds import MAX_RESULT_BYTES
from fumehood_server.orchestration.shown_errors import MAX_DETAILS_BYTES, cut_error, cut_own_error, weight
from fumehood_server.rpc.run_messages import response_message
from hypothesis import given
from hypothesis import strategies as st

CLIENTS_TAKE_BYTES = 4 * 1024 * 1024
LONG = [1] * 28_000
"""56 KB of JSON."""
CAUSE = CallError(code=Code.TOOL_EXECUTION_FAILED, message="x" * 10_000, details={"why": LONG})
FAILURE = CallError(
    code=Code.TOOL_EXECUTION_FAILED,
    message="é" * 10_000,
    details={"v": LONG, "reason": "nope", "limit": 2**80, "value": 3},
    caused_by=replace(CAUSE, caused_by=CAUSE),
)


class Uncopied(str):
    """A text that no response copies, however it is nested."""

    __slots__ = ()

    def __deepcopy__(self, _memo: object) -> Uncopied:
        raise AssertionError("the details of an error were copied")


def made(count: int, error: CallError, *, arguments: str = "{}", use: str = "use") -> MadeCalls:
    calls = MadeCalls()
    for _ in range(count):
        number = calls.add(call_id="r:chat-1:1", tool="fail", tool_use_id=use, arguments_json=arguments)
        calls.fail(number, error)
    return calls


def response(calls: MadeCalls, **fields: Any) -> SystemResponse:
    return SystemResponse(request_id="r", session_id="", state="COMPLETE", tool_calls_made=calls.listed, **fields)


@pytest.mark.parametrize(
    ("count", "arguments", "use"),
    [(20, "{}", "use"), (2_560, "{}", "use"), (4_000, "\U0001f9ea" * 5_000, "é" * 128), (8_000, "", "")],
)
def test_a_response_fits_what_clients_take_whatever_its_calls_failed_with(count: int, arguments: str, use: str) -> None:
    calls = made(count, FAILURE, arguments=arguments, use=use)
    ended = response(calls, content="x" * MAX_RESULT_BYTES, error=cut_own_error(FAILURE))
    listed = response(calls)
    assert calls.count == count
    assert len(listed.tool_calls_made) == count or count > 2_560
    assert {each.error and each.error.code for each in listed.tool_calls_made} == {FAILURE.code}
    assert response_message(listed).ByteSize() < MAX_CALLS_BYTES
    assert response_message(ended).ByteSize() < CLIENTS_TAKE_BYTES
    assert response_from_json(response_to_json(listed)) == listed


def test_a_failure_keeps_what_programs_switch_on_and_short_details_whole() -> None:
    short = CallError(code=Code.TOOL_DENIED, message="No.", details={"reason": "not_offered", "at": [1, {"a": None}]})
    calls = made(1, short)
    assert calls.listed[0].error == short
    cut = cut_error(FAILURE)
    assert cut.details == {"reason": "nope", "value": 3, "truncated": True}
    assert cut.message.endswith("é…")
    assert len(cut.message.encode()) <= 4096
    assert (cut.code, cut.caused_by and cut.caused_by.code) == (FAILURE.code, CAUSE.code)
    own = cut_own_error(replace(FAILURE, details={"v": LONG}))
    assert own.details == {"v": LONG}, "nobody else has what the run itself ended with"
    assert own.caused_by
    assert own.caused_by.details == {"truncated": True}


def test_an_answer_is_written_without_a_copy_of_what_its_calls_failed_with() -> None:
    error = CallError(code=Code.TOOL_DENIED, message="No.", details={"v": [{"deep": Uncopied("text")}]})
    data = response_to_json(response(made(2, error), error=error))
    found = orjson.loads(data)
    assert [each["error"]["details"] for each in found["tool_calls_made"]] == [error.details] * 2


def test_what_is_kept_for_readers_counts_failures() -> None:
    log, error = HappeningLog(), cut_error(replace(FAILURE, details={"v": [[]] * 1_300}))
    size = weight(error)
    assert size > MAX_DETAILS_BYTES
    for _ in range(1_000):
        log.put(ToolFinished("r:chat-1:1", "fail", "", error))
    first = log.after(0)
    assert first
    assert 1_000 - first[0] <= KEPT_CHARS // size


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8) | st.sampled_from(["reason", "value"]), inner),
    max_leaves=30,
)


@given(st.dictionaries(st.sampled_from(["reason", "value", "a", "b"]), json_values), st.text(), st.integers(0, 200))
def test_a_cut_failure_can_be_written_and_is_within_its_bound(
    details: dict[str, Any], message: str, most_bytes: int
) -> None:
    error = CallError(code=Code.TOOL_DENIED, message=message, details=details)
    cut = cut_error(replace(error, caused_by=error), most_bytes)
    data = response_to_json(response(MadeCalls(), error=cut))
    assert len(orjson.dumps(cut.details)) <= max(most_bytes, 4096)
    assert response_message(response_from_json(data)).error.code == error.code
