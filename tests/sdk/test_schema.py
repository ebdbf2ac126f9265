"""Schemas of arguments and results: pinned, and equal whether pydantic makes them or we do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired

import annotated_types
import pytest
from fumehood_sdk import Blob, Content, Context, Field, Plugin, Text
from fumehood_sdk.schema import by_pydantic, outputs, plain
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter
from pydantic import Field as PydanticField
from pydantic_core import SchemaValidator, ValidationError
from typing_extensions import TypedDict  # pydantic refuses typing's own before Python 3.12; we take both


def schemas(function: Callable[..., Any]) -> tuple[Any, Any]:
    plugin = Plugin("trial", version="1")
    plugin.tool(side_effects="none", name="it")(function)
    tool = plugin.tools["it"]
    return json.loads(tool.input_schema_json), json.loads(tool.output_schema_json or "null")


@dataclass
class Roll:
    dice: list[int]
    total: int


class Point(TypedDict):
    x: float
    label: NotRequired[str | None]


@dataclass
class Nested:
    rolls: list[Roll]
    best: Roll | None
    points: dict[str, Point]


@dataclass
class Recursive:
    children: list[Recursive]


@dataclass
class WithDefault:
    names: list[str] = dataclass_field(default_factory=list)
    count: int = 0


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Model(BaseModel):
    """A model of its author's."""

    size: Annotated[int, Field(ge=1)]
    colour: Colour = Colour.RED


def test_the_schemas_of_a_typical_tool_are_pinned() -> None:
    def roll(
        count: Annotated[int, Field(ge=1, le=10, description="How many dice")],
        sides: Literal[4, 6, 8],
        ctx: Context,
        names: list[str] | None = None,
        exact: bool = False,
    ) -> Roll:
        """Roll dice.

        Args:
            count: Not this.
            sides: Sides of each.
        """
        raise NotImplementedError(ctx)

    assert schemas(roll) == (
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["count", "sides"],
            "properties": {
                "count": {"type": "integer", "minimum": 1, "maximum": 10, "description": "How many dice"},
                "sides": {"type": "integer", "enum": [4, 6, 8], "description": "Sides of each."},
                "names": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
                "exact": {"type": "boolean", "default": False},
            },
        },
        {
            "type": "object",
            "title": "Roll",
            "required": ["dice", "total"],
            "properties": {"dice": {"type": "array", "items": {"type": "integer"}}, "total": {"type": "integer"}},
        },
    )


def test_the_schemas_of_a_tool_of_models_are_pinned() -> None:
    def paint(schema: Model, copy: Annotated[int, PydanticField(multiple_of=2)] = 4) -> Model:
        """Paint.

        Args:
            schema: What.
            copy: How often.
        """
        raise NotImplementedError(schema, copy)

    model = {
        "description": "A model of its author's.",
        "properties": {
            "size": {"minimum": 1, "type": "integer"},
            "colour": {"$ref": "#/$defs/Colour", "default": "red"},
        },
        "required": ["size"],
        "title": "Model",
        "type": "object",
    }
    colour = {"enum": ["red", "blue"], "title": "Colour", "type": "string"}
    assert schemas(paint) == (
        {
            "$defs": {"Colour": colour, "Model": model},
            "additionalProperties": False,
            "properties": {
                "schema": {"$ref": "#/$defs/Model", "description": "What."},
                "copy": {"default": 4, "description": "How often.", "multipleOf": 2, "type": "integer"},
            },
            "required": ["schema"],
            "type": "object",
        },
        {"$defs": {"Colour": colour}, **model},
    )


def test_pydantics_field_says_the_same_as_ours() -> None:
    def plain(size: Annotated[int, Field(ge=1, description="d")]) -> None:
        """Do it."""

    def by_pydantic(size: Annotated[int, PydanticField(ge=1, description="d")]) -> None:
        """Do it."""

    assert schemas(plain) == schemas(by_pydantic)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (None, None),
        (Any, None),
        (Content, None),
        (Text, None),
        (Blob, None),
        (list[Text | Blob], None),
        (Content[int], {"type": "integer"}),
        (str, {"type": "string"}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    ],
)
def test_a_return_type_gives_the_schema_of_the_details(annotation: Any, expected: Any) -> None:
    def it():  # type: ignore[no-untyped-def]  # noqa: ANN202
        """Do it."""

    it.__annotations__["return"] = annotation
    assert schemas(it)[1] == expected


@pytest.mark.parametrize("kind", [Roll, Point, Nested, list[Roll], dict[str, Point], Roll | None, list[Nested]])
def test_schemas_of_results_are_those_that_pydantic_makes(kind: Any) -> None:
    assert outputs.json_schema_of(kind) == by_pydantic.output_schema(kind)[0]


@pytest.mark.parametrize("kind", [Recursive, WithDefault, Model, list[Model], Roll | int | Model])
def test_results_beyond_the_simple_are_left_to_pydantic(kind: Any) -> None:
    with pytest.raises(plain.NotPlainError):
        outputs.json_schema_of(kind)
    assert by_pydantic.output_schema(kind)[0]


NUMBERS = st.one_of(
    st.just(int),
    st.just(float),
    st.integers(-5, 5).map(lambda low: Annotated[int, Field(ge=low, lt=low + 7)]),
    st.integers(-5, 5).map(lambda low: Annotated[int, Field(gt=low, description="d")]),
    st.integers(1, 5).map(lambda step: Annotated[float, annotated_types.MultipleOf(step), annotated_types.Le(50)]),
)
STRINGS = st.one_of(
    st.just(str),
    st.integers(0, 3).map(lambda low: Annotated[str, Field(min_length=low, max_length=low + 3, title="t")]),
    st.just(Annotated[str, Field(pattern="^[a-c]+$", examples=["abc"])]),
    st.just(Literal["a", "bc"]),
    st.just(Literal["only"]),
)
LEAVES = st.one_of(NUMBERS, STRINGS, st.just(bool), st.just(Literal[1, 2]))
TYPES = st.recursive(
    st.one_of(LEAVES, st.just(Any), st.just(list), st.just(dict)),
    lambda inner: st.one_of(
        inner.map(lambda kind: list[kind]),
        inner.map(lambda kind: dict[str, kind]),
        inner.map(lambda kind: Annotated[list[kind], Field(min_length=1, max_length=3)]),
        inner.map(lambda kind: Annotated[dict[str, kind], Field(max_length=2)]),
        LEAVES.map(lambda kind: kind | None),
        st.tuples(NUMBERS, STRINGS).map(lambda kinds: kinds[0] | kinds[1]),
        st.tuples(NUMBERS, STRINGS).map(lambda kinds: kinds[0] | kinds[1] | None),
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 60) | st.floats(-9, 60) | st.sampled_from(["", "a", "bc", "only", "5"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)


@given(TYPES, st.lists(VALUES, max_size=8))
def test_the_simple_way_says_and_does_what_pydantic_would(kind: Any, values: list[Any]) -> None:
    core, schema = plain.schemas_of(kind)
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    assert schema == adapter.json_schema()
    ours = SchemaValidator(core)  # type: ignore[arg-type]  # a schema without the types of one
    for value in values:
        text = json.dumps(value)
        assert judged(lambda text=text: ours.validate_json(text, strict=True)) == judged(
            lambda text=text: adapter.validate_json(text, strict=True)
        )


def judged(validate: Callable[[], Any]) -> Any:
    try:
        value = validate()
    except ValidationError as error:
        return [(entry["type"], entry["loc"]) for entry in error.errors()]
    return (type(value), value)
