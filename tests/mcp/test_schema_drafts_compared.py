"""Schemas of older drafts, made at random, beside another validator: it takes and refuses what they do translated."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema  # type: ignore[import-untyped] # ships no types
import pytest
from fumehood_sdk.adapters.mcp.schema_drafts import to_2020_12
from fumehood_server.model.schema import check_schema, compile_schema

DRAFTS = {
    4: ("http://json-schema.org/draft-04/schema#", jsonschema.Draft4Validator),
    6: ("http://json-schema.org/draft-06/schema#", jsonschema.Draft6Validator),
    7: ("http://json-schema.org/draft-07/schema#", jsonschema.Draft7Validator),
    2019: ("https://json-schema.org/draft/2019-09/schema", jsonschema.Draft201909Validator),
}
SCHEMAS, DOCUMENTS = 200, 40
REFERENCES = (
    *("#/definitions/a", "#/definitions/pair", "#/definitions/pair/items/0", "#/definitions/pair/items/1"),
    *("#/definitions/pair/additionalItems", "#/definitions/b%3Cc%3E", "#/definitions/b%3Cc%3E/items/0"),
    *("#named", "https://example.com/whole#/definitions/a", "whole#/definitions/pair/items/0"),
)
"""None to what refers on."""
TYPES = ("array", "boolean", "integer", "null", "object", "string")
SIMPLE = (
    *("type", "enum", "const", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "minItems", "maxItems"),
    *("minContains", "maxContains", "maxLength", "uniqueItems", "required", "maxProperties", "dependentRequired"),
)
NESTED = (
    *("items", "additionalItems", "prefixItems", "contains", "properties", "additionalProperties", "patternProperties"),
    *("propertyNames", "dependencies", "dependentSchemas", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
    *("unevaluatedItems", "unevaluatedProperties"),
)


class Generator:
    """Of schemas with few names and values, so that documents meet them."""

    def __init__(self, draft: int, seed: int) -> None:
        self._draft = draft
        self._random = random.Random(seed)  # noqa: S311 - no secret

    def whole(self) -> dict[str, Any]:
        """A schema of an object with a property `v`, and what it refers to."""
        uri = "id" if self._draft == 4 else "$id"
        named = {"$anchor": "named"} if self._draft == 2019 else {uri: "#named"}
        pair = {"items": [self._schema(0), self._schema(0)], "additionalItems": self._schema(0)}
        definitions = {
            "a": self._schema(0),
            "pair": pair,
            "b<c>": {"type": "array", **pair},
            "n": {**self._schema(0), **named},
        }
        made = {"type": "object", "properties": {"v": self._schema(3, refers=True)}, "definitions": definitions}
        return {"$schema": DRAFTS[self._draft][0], uri: "https://example.com/whole", **made}

    def document(self) -> dict[str, Any]:
        return {"v": self._value(3)}

    def _value(self, depth: int) -> Any:
        kind = self._random.randrange(6 if depth else 4)
        if kind == 4:
            return [self._value(depth - 1) for _ in range(self._random.randrange(4))]
        if kind == 5:
            return {name: self._value(depth - 1) for name in self._some("abc", 3)}
        text = self._random.choice(("", "a", "bb"))
        return (None, self._random.random() < 0.5, self._random.randrange(4), text)[kind]

    def _some(self, names: Any, most: int) -> list[Any]:
        return self._random.sample(names, self._random.randrange(min(most, len(names)) + 1))

    def _schema(self, depth: int, *, refers: bool = False) -> Any:
        keywords = [*self._some(SIMPLE, 2), *self._some(NESTED if depth else (), 2)]
        made = {each: self._value_of(each, depth - 1, refers) for each in keywords}
        if refers and self._random.random() < 0.25:
            made["$ref"] = self._random.choice(REFERENCES)
        return made

    def _value_of(self, keyword: str, depth: int, refers: bool) -> Any:
        def one() -> Any:
            return self._schema(depth, refers=refers)

        def two() -> list[Any]:
            return [one(), one()]

        def flag() -> bool:
            return self._random.random() < 0.5

        def number() -> int:
            return self._random.randrange(3)

        values = {
            "type": lambda: self._random.choice(TYPES),
            "enum": lambda: [self._value(1), self._value(0)],
            "const": lambda: self._value(1),
            "required": lambda: [self._random.choice("abc")],
            "dependentRequired": lambda: {"a": ["c"]},
            "dependencies": lambda: {"a": ["b"], "b": one()},
            "propertyNames": lambda: {"enum": ["a", "b"]},
            "patternProperties": lambda: {"^[bc]": one()},
            "items": lambda: one() if flag() else two(),
            "uniqueItems": flag,
            **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), flag if self._draft == 4 else number),
            **dict.fromkeys(("properties", "dependentSchemas"), lambda: {"a": one(), "b": one()}),
            **dict.fromkeys(("prefixItems", "allOf", "anyOf", "oneOf"), two),
            **dict.fromkeys(("additionalItems", "additionalProperties", "contains", "not", "if", "then", "else"), one),
            # Of 2019-09, this validator doesn't see all that is evaluated.
            **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties"), lambda: self._draft == 2019),
        }
        return values.get(keyword, number)()


@pytest.mark.parametrize("draft", DRAFTS)
def test_what_an_older_draft_takes_and_refuses_is_taken_and_refused_translated(draft: int) -> None:
    generator = Generator(draft, seed=draft)
    taken = refused = 0
    for _ in range(SCHEMAS):
        schema = generator.whole()
        made = check_schema(json.dumps(to_2020_12(schema)), arguments=True)
        theirs, ours = DRAFTS[draft][1](schema), compile_schema(json.loads(made))
        for _ in range(DOCUMENTS):
            document = generator.document()
            fits = theirs.is_valid(document)
            assert ours.is_valid(document) is fits, f"{json.dumps(document)} by {json.dumps(schema)}, made {made}"
            taken, refused = taken + fits, refused + (not fits)
    assert min(taken, refused) > SCHEMAS * DOCUMENTS / 10, "both happen"
