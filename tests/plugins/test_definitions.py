from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import pytest
from fumehood.v1 import tool_pb2
from fumehood_sandbox import Level
from fumehood_server.model.capability import CapabilityError, CapabilityKind, parse_capability
from fumehood_server.model.schema import SCHEMA_LIMIT_BYTES, SchemaError, check_schema
from fumehood_server.plugins.conversion import from_proto
from fumehood_server.plugins.definitions import RawDefinition, check_definition, definition_digest, definition_json
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from .support import SCHEMA, declared

RAW = RawDefinition(name="echo", description="Says it again.", input_schema_json=SCHEMA, side_effects="none")


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "object"}',
        '{"type": "object", "properties": {"$ref": {"type": "string"}}}',
        '{"type": "object", "properties": {"a": {"const": {"$ref": "http://x.invalid/y"}}}}',
        '{"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "array"}}}',
        '{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}',
        '{"type": "object", "properties": {"a": {"maximum": 9007199254740991}}}',
        r'{"type": "object", "properties": {"a": {"pattern": "^(a+)+[^\\s]{8,64}\\p{L}$"}}}',
    ],
)
def test_a_good_schema_is_taken_as_canonical_json(schema: str) -> None:
    text = check_schema(schema, arguments=True)
    assert json.loads(text) == json.loads(schema)
    assert check_schema(text, arguments=True) == text


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[]", "must be a JSON object"),
        ("true", "must be a JSON object"),
        ("{}", '"type": "object"'),
        ('{"type": ["object"]}', '"type": "object"'),
        ('{"type": "object", "type": "object"}', 'has the key "type" twice'),
        ('{"type": "object", "default": NaN}', "NaN is no JSON number"),
        ('{"type": "object", "properties": {"a": {"minimum": "x"}}}', '/properties/a/minimum: "x"'),
        ('{"type": "object", "properties": {"a": {"pattern": "("}}}', "pattern"),
        (r'{"type": "object", "properties": {"a": {"pattern": "(?=.*\\d)(?=.*[a-z]).{8,}"}}}', "in linear time"),
        (r'{"type": "object", "properties": {"a": {"pattern": "(a+)\\1"}}}', "/properties/a/pattern"),
        (r'{"type": "object", "patternProperties": {"(?<!a)b": {}}}', "in linear time"),
        ('{"type": "object", "properties": {"a": {"type": "strin"}}}', "/properties/a/type"),
        ('{"type": "object", "properties": {"a": {"$ref": "http://x.invalid/y"}}}', "refers out of itself"),
        ('{"type": "object", "$defs": {"a": {"$ref": "file:///etc/passwd"}}}', "refers out of itself"),
        ('{"type": "object", "properties": {"a": {"$ref": "other.json"}}}', "refers out of itself"),
        ('{"type": "object", "properties": {"a": {"$dynamicRef": "http://x.invalid/y#z"}}}', "refers out of itself"),
        ('{"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}', "does not exist"),
        ('{"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"}', "another dialect"),
        ('{"type": "object", "properties": {"a": {"maximum": 9007199254740993}}}', "no canonical JSON"),
        ('{"type": "object", "default": ' + "[" * 100 + "]" * 100 + "}", "nested deeper"),
        ('{"type": "object", "default": ' + "[" * 90_000 + "]" * 90_000 + "}", "nested deeper"),
        ('{"type": "object", "title": "' + "x" * SCHEMA_LIMIT_BYTES + '"}', "is larger than"),
        ('{"type": "object", "title": "\\ud800"}', "no canonical JSON"),
        ('{"type": "object", "maximum": ' + "9" * 5000 + "}", "is not JSON"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: str, problem: str) -> None:
    with pytest.raises(SchemaError) as caught:
        check_schema(schema, arguments=True)
    assert problem in caught.value.problem


@pytest.mark.parametrize(
    ("patterns", "worst"),
    [
        (["a", r"\pL{180}", "b"], r"\pL{180}"),
        ([rf"^[a-z]{{{n}}}$" for n in range(1, 400)], "^[a-z]{399}$"),
        (["(?i)[a-z]{9000}"], "(?i)[a-z]{9000}"),
        (["[ab]{ 30000 }"], "[ab]{ 30000 }"),
        (["(?:[ab]{200})?{200}"], "(?:[ab]{200})?{200}"),
        (["[" + "".join(chr(0x1000 + 5 * n) for n in range(300)) + "]{100}"], "["),
    ],
)
@pytest.mark.parametrize("place", ["pattern", "patternProperties", "elsewhere"])
def test_patterns_that_take_long_to_build_are_refused_by_name_before_any_is(
    monkeypatch: pytest.MonkeyPatch, place: str, patterns: list[str], worst: str
) -> None:
    def schema(*texts: str) -> str:
        rules = {
            "pattern": {"properties": {str(n): {"pattern": each} for n, each in enumerate(texts)}},
            "patternProperties": {"patternProperties": {each: {} for each in texts}},
            "elsewhere": {"$ref": "#/properties/a", "properties": {"a": {"x": [{"pattern": each} for each in texts]}}},
        }
        return json.dumps({"type": "object"} | rules[place])

    check_schema(
        schema(r"^\p{L}[\p{L}\p{M} '.-]*$", "^(?i:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$"), arguments=True
    )
    check_schema(schema(*[r"\pL{20}"] * 30), arguments=True)  # each is built once
    built: list[object] = []
    monkeypatch.setattr("fumehood_server.model.schema.compile_schema", built.append)
    with pytest.raises(SchemaError) as caught:
        check_schema(schema(*patterns), arguments=True)
    assert f'"{worst}' in caught.value.problem
    assert "maxLength" in caught.value.hint
    assert not built


def test_only_arguments_must_be_an_object() -> None:
    assert check_schema('{"type": "string"}', arguments=False) == '{"type":"string"}'
    with pytest.raises(SchemaError):
        check_schema('{"type": "string"}', arguments=True)


@given(st.text('{}[]",:truefalsn0123456789.eE$ref/#\\ ', max_size=60))
def test_any_text_is_a_schema_or_refused(text: str) -> None:
    with contextlib.suppress(SchemaError):
        check_schema(text, arguments=False)


@pytest.mark.parametrize(
    ("fields", "field", "problem"),
    [
        ({"name": ""}, "name", "is missing"),
        ({"name": "A"}, "name", "is not a tool's name"),
        ({"name": "a" * 65}, "name", "is not a tool's name"),
        ({"name": "echo\n"}, "name", "is not a tool's name"),
        ({"title": "two\nlines"}, "title", "one line"),
        ({"description": "\t"}, "description", "is missing"),
        ({"description": "x" * 8193}, "description", "is longer than 8192"),
        ({"input_schema_json": ""}, "input_schema", "is missing"),
        ({"output_schema_json": "{"}, "output_schema", "is not JSON"),
        ({"side_effects": ""}, "side_effects", "is missing"),
        ({"side_effects": "number 9"}, "side_effects", "unknown word"),
        ({"requires": ("read",)}, "requires", 'can\'t be had at level "none"'),
        ({"requires": ("binary:",)}, "requires", "is not a capability"),
        ({"requires": ("binary:a",) * 65}, "requires", "more than 64"),
        ({"timeout_s": 0.0}, "timeout_s", "more than 0"),
        ({"timeout_s": -1.0}, "timeout_s", "more than 0"),
        ({"timeout_s": float("nan")}, "timeout_s", "more than 0"),
        ({"timeout_s": 3600.1}, "timeout_s", "at most 3600"),
        ({"isolation": "x"}, "isolation", "unknown word"),
        ({"limits": {"cpu_s": 0}}, "limits.cpu_s", "more than 0"),
        ({"limits": {"memory_bytes": 2**63}}, "limits.memory_bytes", "below 2^53"),
    ],
)
def test_a_field_that_is_wrong_is_named(fields: dict[str, object], field: str, problem: str) -> None:
    definition, problems = check_definition(RAW)
    assert definition is not None
    assert not problems
    definition, problems = check_definition(replace(RAW, **fields))
    assert definition is None
    assert [each.field for each in problems] == [field]
    assert problem in problems[0].problem


def test_a_missing_level_says_which_there_are() -> None:
    _, problems = check_definition(replace(RAW, side_effects=""))
    assert problems[0].hint == 'declare one of "none", "read", "write", "external"'


def test_a_definition_that_a_plugin_sends_is_read_whole() -> None:
    message = declared("echo", "WRITE", title="Echo", idempotent=True, requires=["write", "binary:rg", "write"],
                       isolation=tool_pb2.ISOLATION_CALL, execution_mode=tool_pb2.EXECUTION_MODE_SEQUENTIAL,
                       timeout=Duration(seconds=1, nanos=500_000_000),
                       limits=tool_pb2.Limits(cpu_seconds=3, output_bytes=9))  # fmt: skip
    definition, problems = check_definition(from_proto(message))
    assert not problems
    assert definition is not None
    assert definition.side_effects is Level.WRITE
    assert definition_json(definition) == {
        "name": "echo",
        "title": "Echo",
        "description": "Does what its name says, for tests.",
        "input_schema": json.loads(SCHEMA),
        "output_schema": None,
        "side_effects": "write",
        "idempotent": True,
        "requires": ["binary:rg", "write"],
        "timeout_s": 1.5,
        "isolation": "call",
        "execution_mode": "sequential",
        "limits": {"cpu_s": 3, "output_bytes": 9},
    }


def test_enum_numbers_of_a_later_version_are_refused() -> None:
    message = tool_pb2.ToolDefinition.FromString(declared("echo").SerializeToString() + b"\x30\x09\x50\x07")
    _, problems = check_definition(from_proto(message))
    assert [each.field for each in problems] == ["side_effects", "isolation"]
    _, problems = check_definition(from_proto(declared("echo", "UNSPECIFIED")))
    assert "declare one of" in problems[0].hint


def test_a_limit_of_zero_is_refused_and_not_taken_for_absent() -> None:
    _, problems = check_definition(from_proto(declared("echo", limits=tool_pb2.Limits(processes=0))))
    assert [each.field for each in problems] == ["limits.processes"]


def test_the_digest_follows_meaning_and_not_spelling() -> None:
    first, _ = check_definition(RAW)
    again, _ = check_definition(replace(RAW, input_schema_json=json.dumps(json.loads(SCHEMA), indent=3)))
    other, _ = check_definition(replace(RAW, idempotent=True))
    assert first is not None
    assert again is not None
    assert other is not None
    assert definition_digest(first) == definition_digest(again)
    assert definition_digest(first) != definition_digest(other)


@pytest.mark.parametrize(
    "text",
    ["read", "write", "binary:rg", "binary:g++", "binary:python3.11", "host:example.com:443", "host:a:1",
     "host:xn--bcher-kva.example:65535", "secret:API_KEY"],
)  # fmt: skip
def test_a_capability_is_read_and_written_back(text: str) -> None:
    assert str(parse_capability(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "red", "Read", "read:", "read:x", "write ", "binary", "binary:", "binary:/bin/sh", "binary:..", "binary:a b",
     "binary:-x", "host:example.com", "host:example.com:0", "host:example.com:080", "host:example.com:65536",
     "host:EXAMPLE.com:1", "host:a..b:1", "host:-a:1", "host:a_b:1", "host:[::1]:1", "host:exa\u0301mple.com:1",
     "host:example.com:443\n", "secret:", "secret:a/b", "mcp:x"],
)  # fmt: skip
def test_what_is_no_capability_is_refused(text: str) -> None:
    with pytest.raises(CapabilityError):
        parse_capability(text)


@given(st.text(max_size=40) | st.from_regex(r"(host|binary|secret|read|write):?[a-z0-9.:_-]{0,20}", fullmatch=True))
def test_there_is_one_way_to_write_a_capability(text: str) -> None:
    try:
        capability = parse_capability(text)
    except CapabilityError:
        return
    assert str(capability) == text
    assert (capability.port > 0) == (capability.kind is CapabilityKind.HOST)
