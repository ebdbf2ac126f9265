"""A server one of whose tools runs as a task alone: that one is told as unavailable, and its other tools serve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fumehood.v1 import tool_pb2
from fumehood_sdk.adapters.mcp.definitions import encode_definitions

from tests.cli.command import fumehood
from tests.mcp.support import Caller
from tests.mcp.test_schemas import plugin
from tests.sidecar import running_sidecar

TASK = {"inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}
TOOLS: dict[str, Any] = {
    "plain": {"inputSchema": {"type": "object"}},
    "forbidden": {**TASK, "execution": {"taskSupport": "forbidden"}},
    "optional": {**TASK, "execution": {"taskSupport": "optional"}},
    "required": TASK,
}


async def test_tool_that_runs_as_a_task_alone_is_unavailable_and_never_called(tmp_path: Path) -> None:
    folder = plugin(tmp_path / "research", TOOLS)
    grants = '[plugin.tools.required]\npermission = "allow"\nside_effects = "read"'
    with running_sidecar([(folder, grants)]) as sidecar:
        async with sidecar.channel() as channel:
            caller = Caller(channel)
            tools = await caller.tools()
            reasons = {name: [each.code for each in tool.availability.reasons] for name, tool in tools.items()}
            assert reasons == {"plain": [], "forbidden": [], "optional": [], "required": ["task_required"]}
            for name in ("plain", "forbidden", "optional"):
                assert await caller.text(name) == f"called {name}"
            refused = await caller.call("required")
            assert refused.error.code == "TOOL_UNAVAILABLE", refused
            (why,) = json.loads(refused.error.details_json)["reasons"]
            assert (why["code"], "taskSupport: required" in why["message"]) == ("task_required", True)
        listed = fumehood("tools", "--all", address=sidecar.target).stdout
        assert "required can't be called: its server runs it as a task alone" in " ".join(listed.split())


def test_commands_tell_beforehand_of_a_tool_that_runs_as_a_task_alone(tmp_path: Path) -> None:
    folder = plugin(tmp_path / "research", TOOLS)
    (tmp_path / "fumehood.toml").write_text("")
    added = fumehood("plugin", "add", folder, "--yes", folder=tmp_path)
    assert added.status == 0, added.stderr
    said = " ".join((added.stdout + added.stderr).split())
    assert "required: it is listed as unavailable and can't be called: its server runs it as a task alone" in said
    assert "optional: " not in said
    pinned = json.loads((tmp_path / "fumehood.lock").read_text())["plugins"]["research"]["tools"]
    levels = {name: each["definition"]["side_effects"] for name, each in pinned.items()}
    assert levels == {"plain": "read", "forbidden": "read", "optional": "read", "required": "none"}
    again = fumehood("plugin", "add", folder, "--yes", folder=tmp_path)
    assert "Exactly this is pinned already" in again.stdout, again


@pytest.mark.parametrize("execution", [None, [], "required", {}, {"taskSupport": None}, {"taskSupport": ["required"]}])
def test_execution_that_is_not_the_protocols_counts_for_nothing(execution: object) -> None:
    ((_, encoded),) = encode_definitions([{"name": "odd", "execution": execution}], "s").values()
    assert list(tool_pb2.ToolDefinition.FromString(encoded).claims) == []
