"""Definitions of a server's tools: a schema that can't be written as JSON is one that the sidecar refuses."""

from __future__ import annotations

from typing import Any

import pytest
from fumehood.v1 import tool_pb2
from fumehood_sdk.adapters.mcp.definitions import encode_definitions
from fumehood_server.model.schema import SchemaError, check_schema


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
