from __future__ import annotations

import pytest
from fumehood_server.model.call import Block, CallError
from fumehood_server.model.taxonomy import Code
from fumehood_server.validation.schemas import Validators

from tests.calls.documents import check_result
from tests.calls.fake import SPEC, answered, tool

NUMBER = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'
FAILED = CallError(code=Code.TOOL_EXECUTION_FAILED, message="it broke", details={"reason": "broken"})


def test_content_is_filled_from_details_when_there_is_none() -> None:
    checked = check_result(tool(), SPEC, answered(details_json='{"n":1}'), Validators())
    assert checked.content == (Block(text='{"n":1}'),)
    assert checked.error is None


def test_details_that_fit_the_output_schema_pass() -> None:
    checked = check_result(tool(output_schema=NUMBER), SPEC, answered("one", details_json='{"n":1}'), Validators())
    assert checked.error is None
    assert checked.content == (Block(text="one"),)


@pytest.mark.parametrize(("details", "where"), [('{"n":"x"}', "/n"), ("", ""), ("{}", "")])
def test_details_that_break_the_output_schema_are_an_error_of_the_plugin(details: str, where: str) -> None:
    checked = check_result(tool(output_schema=NUMBER), SPEC, answered("one", details_json=details), Validators())
    assert checked.error is not None
    assert checked.error.code is Code.CONSTRAINT_SCHEMA_INVALID
    assert checked.error.details["output"][0]["pointer"] == where
    assert checked.details_json == ""
    assert checked.content == (Block(text=checked.error.message),)


@pytest.mark.parametrize("details", ["{", "NaN", '{"a":1,"a":2}', "[" * 100 + "]" * 100])
def test_details_that_are_no_strict_json_are_refused(details: str) -> None:
    checked = check_result(tool(), SPEC, answered("x", details_json=details), Validators())
    assert checked.error is not None
    assert checked.error.code is Code.CONSTRAINT_JSON_INVALID


def test_a_result_at_the_output_cap_passes_and_one_byte_more_names_the_limit() -> None:
    assert check_result(tool(), SPEC, answered("x" * SPEC.output_bytes), Validators()).error is None
    checked = check_result(tool(), SPEC, answered("é" * 500 + "x"), Validators())
    assert checked.error is not None
    assert checked.error.code is Code.TOOL_RESOURCE_EXHAUSTED
    assert checked.error.details == {"limit": "output_bytes", "value": 1000, "usage": 1001, "unit": "bytes"}


def test_a_failure_keeps_what_the_tool_said_or_shows_the_message() -> None:
    checked = check_result(tool(), SPEC, answered(error=FAILED), Validators())
    assert checked.content == (Block(text="it broke"),)
    checked = check_result(tool(), SPEC, answered("more", error=FAILED), Validators())
    assert checked.content == (Block(text="more"),)
    assert checked.error is FAILED


def test_a_failure_can_not_carry_more_than_the_cap() -> None:
    checked = check_result(tool(), SPEC, answered("x" * 5000, error=FAILED), Validators())
    assert checked.content == (Block(text="it broke"),)
    assert checked.error is FAILED
