"""Which schemas are compiled on the event loop: ordinary ones, and none that takes long to count, compile or ask."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from fumehood_server.validation.budget import INLINE, PROCESS, OverBudgetError
from fumehood_server.validation.checking import check_document
from fumehood_server.validation.documents import Accepted, Document, Kind, Verdict
from fumehood_server.validation.schemas import Validators
from pydantic import BaseModel, Field

ZOD_DATE_TIME = (
    r"^(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29|\d{4}-(?:(?:0[13578]|1[02])-"
    r"(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|(?:02)-(?:0[1-9]|1\d|2[0-8])))T(?:(?:[01]\d|2[0-3]):"
    r"[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?:Z))$"
)
ZOD_EMAIL = r"^(?:[A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"


class Line(BaseModel):
    name: str = Field(pattern=r"^[a-z]{1,64}$")
    price: float = Field(ge=0, multiple_of=0.01)
    kind: Literal["a", "b"] = "a"


class Order(BaseModel):
    customer: str = Field(pattern=r"^[\w '.-]{1,100}$", description="Whose it is {as written}")
    lines: list[Line] = Field(max_length=50)
    parent: Order | None = None
    tags: dict[str, str] = {}


ZOD = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "at": {"type": "string", "format": "date-time", "pattern": ZOD_DATE_TIME},
        "to": {"type": "string", "format": "email", "pattern": ZOD_EMAIL},
        "what": {
            "anyOf": [
                {"type": "object", "properties": {"n": {"type": "integer", "exclusiveMinimum": 0}}},
                {"type": "null"},
            ]
        },
    },
    "required": ["at", "to"],
    "additionalProperties": False,
}
WIDE = {"properties": {f"p{n}": {"type": "string", "description": "What it is"} for n in range(150)}}
CHAIN = {f"d{n}": {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(100)} | {"d100": {}}


def checked(schema: dict[str, Any], value: object) -> Verdict:
    schema_json = json.dumps({"type": "object"} | schema, separators=(",", ":"))
    return check_document(Document(Kind.ARGUMENTS, "d", schema_json, json.dumps(value)), Validators(INLINE), INLINE)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (Order.model_json_schema(), {"customer": "A. B.", "lines": [{"name": "x", "price": 1.25}] * 3}),
        (ZOD, {"at": "2026-01-02T03:04:05Z", "to": "a.b@example.com", "what": {"n": 1}}),
        (WIDE, {"p1": "x"}),
        ({"properties": {"name": {"type": "string", "pattern": r"^\p{L}{1,20}$"}}}, {"name": "Zoë"}),
        ({"properties": {"a": {"const": 1}}, "dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 2}),
        ({"$ref": "#/$defs/d0", "$defs": CHAIN}, {"a": {"a": {}}}),
    ],
)
def test_an_ordinary_schema_is_asked_on_the_event_loop(schema: dict[str, Any], value: object) -> None:
    assert isinstance(checked(schema, value), Accepted)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"allOf": [{}] * 4_990}, {}),
        ({"properties": {f"{n:x}": {} for n in range(1_500)}}, {}),
        ({"allOf": [{"not": {"type": "string"}}] * 300}, {}),
        ({"properties": {"a": {"pattern": "[" + r"\S" * 5_000 + "]"}}}, {}),
        ({"properties": {"a": {"pattern": r"\d" * 300}}}, {}),
        ({"properties": {"a": {"items": {"multipleOf": 1e-300}}}}, {"a": [1e300] * 1_900}),
        (
            {"properties": {"a": {"items": {"dependentRequired": {f"{n:x}": [] for n in range(900)}}}}},
            {"a": [{}] * 1_500},
        ),
        ({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": CHAIN}, json.loads('{"a":' * 60 + "{}" + "}" * 60)),
    ],
)
def test_one_that_takes_long_is_asked_elsewhere(schema: dict[str, Any], value: object) -> None:
    with pytest.raises(OverBudgetError):
        checked(schema, value)


def test_many_rules_are_compiled_elsewhere() -> None:
    def ruled(count: int) -> Document:
        rules = json.dumps([[f"r{n}", "", {"minLength": n}] for n in range(count)])
        return Document(Kind.RULED, "d", rules, "null")

    assert isinstance(check_document(ruled(50), Validators(INLINE), INLINE), Accepted)
    with pytest.raises(OverBudgetError):
        check_document(ruled(300), Validators(INLINE), INLINE)
    assert isinstance(check_document(ruled(300), Validators(PROCESS), PROCESS), Accepted)
