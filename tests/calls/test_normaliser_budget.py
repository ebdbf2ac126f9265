"""Arguments are walked a second time as they were written, which takes no more looks than the first time."""

from __future__ import annotations

import json

import pytest
from fumehood_server.validation.budget import PROCESS
from fumehood_server.validation.documents import Accepted, Document, Kind, check
from fumehood_server.validation.schemas import Validators

THIRTY_TIMES = {"type": "array", "items": {"allOf": [{"type": "integer"} for _ in range(30)]}}
UNIONS = {
    "type": "array",
    "items": {"anyOf": [{"type": "string", "allOf": [{"type": "integer"}] * 30}, {"type": "number"}]},
}
DEFAULTS = {"type": "object", "properties": {"x": {"type": "integer", "minimum": 5, "default": 1}, "y": {"default": 7}}}


@pytest.mark.parametrize(
    ("items", "written", "count"),
    [
        (THIRTY_TIMES, "1", 100),
        (THIRTY_TIMES, "11111111111111111111", 100),
        (THIRTY_TIMES, "11111111111111111111", 120_000),
        (THIRTY_TIMES, "-1111111111111111111", 120_000),
        (UNIONS, "0.5", 60_000),
    ],
)
def test_a_second_walk_over_long_numbers_ends_within_the_budget(items: object, written: str, count: int) -> None:
    """A default that doesn't fit is taken out of what the second walk has made."""
    schema = {"type": "object", "properties": {"a": items, "b": DEFAULTS, "c": {"type": "integer"}}}
    numbers = ",".join([written] * count)
    document = Document(Kind.ARGUMENTS, "d", json.dumps(schema), f'{{"c":2.0,"a":[{numbers}],"b":{{}}}}')
    made = check(document, Validators(PROCESS), PROCESS)
    assert made == Accepted(f'{{"c":2,"a":[{numbers}],"b":{{"y":7}}}}')
