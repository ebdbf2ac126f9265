"""What a call's caller got is kept whole, whatever a plugin put into its error."""

from __future__ import annotations

import pytest
from fumehood_server.model.call import Annotations, Block, CallError, CallOutcome
from fumehood_server.model.outcome_json import outcome_from_json, outcome_to_json
from fumehood_server.model.taxonomy import Code


def outcome(**fields: object) -> CallOutcome:
    return CallOutcome(call_id="c", tool="t", attempts=1, **fields)  # type: ignore[arg-type] # fields by name


def again(made: CallOutcome) -> CallOutcome:
    return outcome_from_json(outcome_to_json(made), call_id="c", tool="t", attempts=1)


def test_an_outcome_reads_as_it_was_written() -> None:
    cause = CallError(code=Code.TOOL_UNAVAILABLE, message="before", retryable=True)
    error = CallError(code=Code.TOOL_EXECUTION_FAILED, message="no", details={"reason": ["x", 1]}, caused_by=cause)
    content = (Block(text="text"), Block(text=""), Block(data=b"\x00\xff", media_type="image/png"))
    for made in (outcome(content=content, details_json="{}", terminate=True), outcome(error=error)):
        assert again(made) == made


def test_what_is_said_of_blocks_reads_as_it_was_written() -> None:
    said = Annotations(audience=("user",), priority=0.0, last_modified="2026-01-01")
    content = (
        Block(text="# one", media_type="text/markdown", resource_uri="file:///a", annotations=said),
        Block(text="", annotations=Annotations(priority=1.0)),
        Block(data=b"\xff", media_type="image/png", resource_uri="file:///b", annotations=said),
    )
    made = outcome(content=content)
    assert again(made) == made


def test_a_block_of_which_nothing_is_said_is_recorded_as_ever() -> None:
    made = outcome(content=(Block(text="text"), Block(data=b"\xff", media_type="image/png")))
    assert outcome_to_json(made) == (
        b'{"content":[{"text":"text"},{"data":"/w==","media_type":"image/png"}],'
        b'"details_json":"","terminate":false,"error":null}'
    )


@pytest.mark.parametrize(
    ("details", "kept"),
    [({"half": "\ud800"}, {"half": "\ud800"}), ({"keys": {1: {(2,): None}}}, {"keys": {"1": {"(2,)": None}}})],
)
def test_details_that_no_json_holds_are_kept_nearly_as_they_were(
    details: dict[str, object], kept: dict[str, object]
) -> None:
    error = CallError(code=Code.TOOL_EXECUTION_FAILED, message="no", details=details)
    found = again(outcome(error=error)).error
    assert found is not None
    assert found.details == kept


def test_what_is_no_outcome_is_refused() -> None:
    for data in (b"{}", b"[]", b"nonsense", b'{"content":1}'):
        with pytest.raises(ValueError, match=r"."):
            outcome_from_json(data, call_id="c", tool="t", attempts=1)
