"""Long JSON is read and written as short JSON is, and no part of it keeps the event loop from its turns."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.failures import RunFailedError
from fumehood_server.orchestration.plans.long_json import TooLongError, dump, dumped, loaded, loaded_strictly
from fumehood_server.orchestration.plans.rendering import Renderer
from fumehood_server.telemetry.loop_watchdog import NOTED_S
from fumehood_server.validation import json_in_parts
from fumehood_server.validation.json_in_parts import read, read_strictly
from fumehood_server.validation.strict_json import JsonError, parse
from hypothesis import example, given
from hypothesis import strategies as st

from tests.loop_steps import held_up_s
from tests.orchestration.plans.fake import FakeRun, failure_of, request_for, tool_step

OBJECTS = '{"list":[' + f'{{"a":[{"1.5," * 11}2.5]}},' * 25_000 + "{}]}"
"""1.3 MiB."""
VALUE = json.loads(OBJECTS)
UNWRITABLE = object()

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
texts = st.sampled_from(["},", "],", ",", '"', "{", "}", "[]", "\\", "é"])
values = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(max_size=3) | texts, inner),
    max_leaves=40,
)
pieces = st.sampled_from(
    [
        *("", '"', ",", "{", "}", "[", "]", "},", "],", ":", " ", "\n", "\\", "1", "-", "0", str(2**70)),
        *("NaN", "Infinity", "1e999", "\x01", "\u0660", "\\ud800", "\ud800", '"a":1,', "[" * 64, "]" * 64),
    ]
)


@contextmanager
def small_parts() -> Iterator[None]:
    """Parts of some characters alone."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_in_parts, "PART_CHARS", 40)
        patched.setattr(json_in_parts, "_SMALL_CHARS", 8)
        patched.setattr(json_in_parts, "is_long", lambda value: len(json.dumps(value)) > 20)
        yield


@pytest.mark.parametrize(
    "work",
    [lambda: loaded(OBJECTS), lambda: loaded_strictly(OBJECTS), lambda: dumped(VALUE)],
    ids=["read", "read strictly", "written"],
)
async def test_1_mib_of_json_keeps_the_loop_from_its_turns_for_no_20_ms(
    work: Callable[[], Awaitable[Any]],
) -> None:
    assert await held_up_s(work) < NOTED_S


@given(values)
def test_what_is_written_in_parts_is_what_json_writes(value: Any) -> None:
    whole = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    with small_parts():
        assert dump(value) == whole
        assert dump(value, len(whole)) == whole
        with pytest.raises(TooLongError):
            dump(value, len(whole) - 1)


@given(values, st.sampled_from([None, 1]), st.lists(st.tuples(st.integers(0), pieces, st.integers(0, 2)), max_size=3))
@example(["x" * 50, {"a": 1, "b": [[], {}] * 20, "c": {"a": "},"}}], None, [])
@example([{}], 1, [(3, "[" * 64, 0)])
def test_what_is_read_in_parts_is_what_json_reads(value: Any, indent: int | None, cuts: list[Any]) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    for at, piece, fewer in cuts:
        at %= len(text) + 1  # noqa: PLW2901 - any place, however long the text is
        text = text[:at] + piece + text[at + fewer :]
    with small_parts():
        assert outcome(read, text) == outcome(json.loads, text)
        assert outcome(read_strictly, text) == outcome(strictly_at_once, text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a":1,"list":[' + "1," * 20 + '2],"a":2}', 'has the key "a" twice in one object'),
        ("[" * 65 + "1," * 30 + "1" + "]" * 65, "is nested deeper than 64 levels"),
        ("[" + "1," * 60 + "NaN]", "is not JSON: "),
    ],
)
def test_what_is_refused_in_a_part_is_refused_as_in_the_whole(text: str, problem: str) -> None:
    with small_parts(), pytest.raises(JsonError) as caught:
        read_strictly(text)
    assert caught.value.problem.startswith(problem)


@pytest.mark.parametrize("is_prompt", [False, True], ids=["arguments", "prompt"])
def test_an_input_is_written_no_further_than_its_bound(*, is_prompt: bool) -> None:
    renderer = Renderer({"step": [OBJECTS, OBJECTS, UNWRITABLE]})
    reference = {"$from": "step", "pointer": ""}
    with pytest.raises(RunFailedError) as caught:
        renderer.prompt(["See: ", reference]) if is_prompt else renderer.json_text({"all": reference})
    assert caught.value.error.code is Code.TOOL_RESOURCE_EXHAUSTED


async def test_an_output_that_no_answer_can_hold_is_refused() -> None:
    run = FakeRun(
        request_for([tool_step("large", "large")], output={"$from": "large", "pointer": ""}),
        tools_by_name={"large": lambda _: [OBJECTS] * 3},
    )
    error = await failure_of(run)
    assert (error.code, error.details["reason"]) == (Code.INFERENCE_MALFORMED_RESPONSE, "response_too_large")


def outcome(load: Callable[[str], Any], text: str) -> str:
    try:
        return json.dumps(load(text))
    except ValueError as exc:
        return type(exc).__name__


def strictly_at_once(text: str) -> Any:
    parse(text)
    return json.loads(text)
