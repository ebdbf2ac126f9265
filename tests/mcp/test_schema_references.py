"""References and names of older drafts lead where they led; those that can't be translated are refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fumehood_sdk.adapters.mcp.schema_drafts import to_2020_12
from fumehood_server.model.schema import SchemaError, check_schema, compile_schema

DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
LATEST = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
DRAFT_2019 = {"$schema": "https://json-schema.org/draft/2019-09/schema"}
URI = "https://example.com/whole"
NUMBER = {"type": "number"}
PAIR = {"items": [NUMBER, {"type": "string"}], "additionalItems": {"type": "null"}}


def taken(schema: dict[str, Any]) -> str:
    """The schema as the sidecar takes it."""
    return check_schema(json.dumps(to_2020_12({"type": "object"} | schema)), arguments=True)


def to(reference: str) -> dict[str, Any]:
    return {"properties": {"v": {"$ref": reference}}}


@pytest.mark.parametrize(
    "schema",
    [
        DRAFT_7 | to("#n") | {"definitions": {"x": {"$id": "#n"} | NUMBER}},
        DRAFT_4 | to("#n") | {"definitions": {"x": {"id": "#n"} | NUMBER}},
        DRAFT_4 | to(f"{URI}#/definitions/x") | {"id": URI, "definitions": {"x": NUMBER}},
        DRAFT_7 | to(f"{URI}#/definitions/x/items/0") | {"$id": f"{URI}#", "definitions": {"x": PAIR}},
        DRAFT_7 | to("whole#/definitions/x") | {"$id": URI, "definitions": {"x": NUMBER}},
        LATEST | to(f"{URI}#/$defs/x") | {"$id": URI, "$defs": {"x": NUMBER}},
        LATEST | to("whole#n") | {"$id": f"{URI}#", "$defs": {"x": {"$anchor": "n"} | NUMBER}},
        LATEST
        | {"$id": URI, "allOf": [{"not": {"not": {"$ref": f"{URI}#/$defs/x"}}}]}
        | {"$defs": {"x": {"properties": {"v": NUMBER}}}},
        DRAFT_7 | to("#/definitions/x%3Cy%3E/%69tems/0") | {"definitions": {"x<y>": PAIR}},
        DRAFT_7 | to("#/definitions/a~1b%7E0/items/0") | {"definitions": {"a/b~": PAIR}},
        DRAFT_7 | to("#/dependencies/a/items/0") | {"dependencies": {"a": PAIR}},
        {"$ref": "#/definitions/w", "required": ["gone"], "definitions": {"w": {"properties": {"v": NUMBER}}}}
        | DRAFT_7,
        DRAFT_2019 | {"$recursiveAnchor": True, "properties": {"v": NUMBER, "more": {"$recursiveRef": "#"}}},
    ],
)
def test_reference_leads_to_the_number_that_it_led_to(schema: dict[str, Any]) -> None:
    rule = compile_schema(json.loads(taken(schema)))
    assert rule.is_valid({"v": 1})
    assert not rule.is_valid({"v": "a"})


def test_recursion_leads_to_the_whole() -> None:
    rule = DRAFT_2019 | {"$recursiveAnchor": True, "properties": {"v": NUMBER, "more": {"$recursiveRef": "#"}}}
    assert not compile_schema(json.loads(taken(rule))).is_valid({"more": {"more": {"v": "a"}}})


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        (DRAFT_7 | {"properties": {"v": {"$id": f"{URI}#n"}}}, f'"{URI}#n" does not match'),
        (DRAFT_7 | to("#/$anchor"), "/not_in_this_draft/$anchor"),
        (DRAFT_7 | to("#/prefixItems/0") | PAIR, "/not_in_this_draft/prefixItems/0"),
        (DRAFT_7 | to("#/allOf/0/not") | {"allOf": [{"$ref": "#", "not": {}}]}, "/not_in_this_draft/allOf/0/not"),
        (DRAFT_7 | to("#/definitions/none"), "/definitions/none"),
        (DRAFT_7 | to("other#/definitions/x") | {"$id": URI}, "refers out of itself"),
        # What stands under a keyword that no draft has, or has another URI, isn't counted: it could be anything.
        (DRAFT_7 | to("#/x-defs/t/items/0") | {"x-defs": {"t": PAIR}}, "refer to #/$defs/…"),
        (DRAFT_7 | to(f"{URI}#/items") | {"definitions": {"x": {"$id": URI, "items": NUMBER}}}, "refer to #/$defs/…"),
        (
            DRAFT_2019 | {"$recursiveAnchor": True, "$defs": {"x": {"$id": URI, "not": {"$recursiveRef": "#"}}}},
            "/$recursiveAnchor",
        ),
    ],
)
def test_what_is_not_translated_is_refused_by_name(schema: dict[str, Any], named: str) -> None:
    with pytest.raises(SchemaError) as refused:
        taken(schema)
    assert named in f"{refused.value.problem} {refused.value.hint}"


def test_all_else_of_a_schema_of_2020_12_stays_as_it_is() -> None:
    data = {"$ref": f"{URI}#/$defs/x", "dependencies": {"a": ["b"]}}
    part = {"$id": "other", "not": {"$ref": f"{URI}#/$defs/x"}}
    older = DRAFT_7 | {"items": [{"$ref": f"{URI}#/$defs/x"}]}
    rest = {"$id": URI, "const": data, "x-ours": data, "dependencies": {"a": ["b"]}, "anyOf": [part, older, True]}
    others = {"a": {"$ref": "other#/a"}, "b": {"$ref": "#/$defs/x"}, "c": {"$ref": "http://["}}
    schema = LATEST | rest | {"properties": others | {"d": {"$ref": URI}}}
    assert to_2020_12(schema) == LATEST | rest | {"properties": others | {"d": {"$ref": "#"}}}
    nameless = LATEST | to(URI)
    assert to_2020_12(nameless) == nameless


def test_pointer_into_what_is_not_translated_stays() -> None:
    for schema in (to("#/x-defs/t/items/0") | {"x-defs": {"t": PAIR}}, to("#/enum/0/items/0") | {"enum": [PAIR]}):
        assert to_2020_12(schema) == schema
    later = {"$schema": "https://json-schema.org/draft/2020-12/schema", "items": [NUMBER]}
    assert to_2020_12(to("#/not/items/0") | {"not": later}) == to("#/not/items/0") | {"not": later}
