"""Definitions of a server's tools: each has its own name, and a schema that is no JSON is refused by the sidecar."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fumehood.v1 import tool_pb2
from fumehood_sdk.adapters.mcp.definitions import encode_definitions
from fumehood_sdk.adapters.mcp.faults import ServerFault
from fumehood_server.model.schema import SchemaError, check_schema
from hypothesis import given
from hypothesis import strategies as st


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "not": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "problem"),
    [({"type": "object", "title": "\udfff"}, "has no canonical JSON"), (nested(100_000), "is nested deeper")],
    ids=["half_a_pair", "depth"],
)
def test_schema_that_cannot_be_written_is_refused_for_what_it_is(schema: dict[str, Any], problem: str) -> None:
    tools = [{"name": "good"}, {"name": "bad", "inputSchema": schema}]
    encoded = {
        name: tool_pb2.ToolDefinition.FromString(each) for name, (_, each) in encode_definitions(tools, "s").items()
    }
    assert check_schema(encoded["good"].input_schema_json, arguments=True)
    with pytest.raises(SchemaError, match=problem):
        check_schema(encoded["bad"].input_schema_json, arguments=True)


def names(*theirs: str) -> dict[str, str]:
    """Names here by those at the server."""
    found = encode_definitions([{"name": each} for each in theirs], "s")
    for name, (_, encoded) in found.items():
        assert tool_pb2.ToolDefinition.FromString(encoded).name == name
        assert re.fullmatch("[a-z][a-z0-9_]{0,63}", name)
    return {each: name for name, (each, _) in found.items()}


def test_name_that_is_one_here_is_kept_and_one_that_would_become_it_gets_a_digest() -> None:
    assert names("getUser", "Get-Team") == {"getUser": "get_user", "Get-Team": "get_team"}
    found = names("getUser", "get_user", "Get-Team")
    assert found == {"getUser": "get_user_e28ebfde", "get_user": "get_user", "Get-Team": "get_team"}


@pytest.mark.parametrize(
    "theirs", [["検索", "作成"], ["x" * 63 + "-y", "x" * 63 + "-z", "x" * 63], ["a.b", "a-b", "a/b", "a_b"]]
)
def test_names_that_come_to_one_are_told_apart_whatever_stands_beside_them(theirs: list[str]) -> None:
    found = names(*theirs)
    assert len(set(found.values())) == len(theirs)
    later = names("another", *reversed(theirs), f"{theirs[0]} ", f"{theirs[0]}!")
    assert {each: later[each] for each in theirs} == found


NAME = st.text("aB_- é", min_size=1, max_size=4) | st.text(st.characters(), min_size=1, max_size=80)


@given(st.lists(NAME, min_size=1, max_size=12, unique=True))
def test_every_tool_is_served(theirs: list[str]) -> None:
    assert set(names(*theirs)) == set(theirs)


@pytest.mark.parametrize("theirs", [("a", "b", "a"), ("getUser", "get_user", "get_user_e28ebfde")])
def test_two_tools_that_no_name_tells_apart_are_refused_with_what_mends_it(theirs: tuple[str, ...]) -> None:
    with pytest.raises(ServerFault, match="the server has to rename one of them"):
        names(*theirs)
