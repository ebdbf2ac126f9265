"""A default that doesn't fit is left out, and the others of the schema are filled in beside it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fumehood_server.validation.budget import OverBudgetError
from fumehood_server.validation.filled_defaults import FilledDefaults

from .test_normaliser import handed_on

LIMIT = {"type": "integer", "default": 10}
ONE_OF_TWO = {
    "properties": {
        "path": {"type": "string"},
        "url": {"type": "string", "default": "http://localhost"},
        "limit": LIMIT,
    },
    "oneOf": [{"required": ["path"]}, {"required": ["url"]}],
}


@pytest.mark.parametrize(
    "unfit",
    [
        {"type": "integer", "minimum": 1, "default": 0},
        {"type": "integer", "default": 0.5},
        {"$ref": "#/$defs/whole", "default": "a"},
        {"type": "array", "items": {"type": "string"}, "default": [1]},
    ],
)
def test_a_default_that_its_own_schema_refuses_takes_no_other_with_it(unfit: dict[str, Any]) -> None:
    assert handed_on({"a": unfit, "limit": LIMIT, "z": unfit}, "{}") == '{"limit":10}'
    rows = {"type": "array", "items": {"type": "object", "properties": {"a": unfit, "limit": LIMIT}}}
    assert handed_on({"rows": rows}, '{"rows":[{},{}]}') == '{"rows":[{"limit":10},{"limit":10}]}'


def test_a_default_that_would_choose_another_branch_takes_no_other_with_it() -> None:
    assert json.loads(handed_on(text='{"path":"a"}', **ONE_OF_TWO)) == {"path": "a", "limit": 10}
    assert json.loads(handed_on(text='{"url":"b"}', **ONE_OF_TWO)) == {"url": "b", "limit": 10}
    within = {"type": "object", **ONE_OF_TWO}
    assert json.loads(handed_on({"x": within}, '{"x":{"path":"a"}}')) == {"x": {"path": "a", "limit": 10}}


def test_of_defaults_that_exclude_each_other_the_first_is_filled_in() -> None:
    assert handed_on({"a": {"default": 1}, "b": {"default": 2}}, "{}", maxProperties=1) == '{"a":1}'


def test_the_other_numbers_keep_every_digit_beside_a_default_that_does_not_fit() -> None:
    unfit = {"type": "integer", "minimum": 1, "default": 0}
    inner = {"type": "object", "properties": {"bad": unfit, "limit": LIMIT}}
    text = '{"big":90071992547409931234567890,"t":1.10,"x":%s}'
    made = handed_on({"x": inner, "bad": unfit}, text.replace("%s", "{}"))
    assert made == text.replace("%s", '{"limit":10}')


def test_what_was_not_found_to_fit_in_time_is_left_out() -> None:
    document: dict[str, Any] = {}
    filled = FilledDefaults(document)
    defaults = [(number, 1) for number in range(8)]
    for number, default in enumerate(defaults):
        filled.fill_in(document, f"p{number}", default)

    def without_the_last(looked_at: dict[str, Any], times: int) -> bool:
        if times > 3:
            raise OverBudgetError
        return "p7" not in looked_at

    unfit = filled.take_out_unfit(without_the_last, hands_over=False)
    assert document == {f"p{number}": number for number in range(4)}
    assert unfit == {id(each) for each in defaults[4:]}
    for each in defaults[4:]:
        filled.fill_in(document, f"p{each[0]}", each)
    with pytest.raises(OverBudgetError):
        filled.take_out_unfit(lambda *_: without_the_last({}, 9), hands_over=True)


WHOLE = {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "default"),
    [
        (WHOLE, "5"),
        ({"$ref": "#/$defs/whole"}, "5"),
        ({"anyOf": [{"type": "null"}, WHOLE]}, "5"),
        ({"type": "array", "items": WHOLE}, "[5,6]"),
        ({"type": "object", "properties": {"n": WHOLE, "ratio": {"type": "number"}}}, '{"n":5,"ratio":5.0}'),
        ({"type": "number"}, "5.0"),
    ],
)
def test_an_integer_of_a_default_comes_without_fraction(schema: dict[str, Any], default: str) -> None:
    written = json.loads(default, parse_int=float)
    assert handed_on({"n": {**schema, "default": written}}, "{}") == f'{{"n":{default}}}'
