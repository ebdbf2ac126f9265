"""A server one of whose tools has a schema that isn't taken: that one is listed with the reason, the others serve."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fumehood.v1 import plugin_service_pb2 as plugin_pb
from fumehood.v1 import tool_pb2
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub

from tests.cli.command import fumehood
from tests.mcp.support import Caller, mcp_plugin, reason
from tests.sidecar import Sidecar, running_sidecar

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
PAIR = {"type": "array", "items": [{"type": "number"}, {"type": "number"}], "additionalItems": False}


def arguments(rule: dict[str, Any]) -> dict[str, Any]:
    return {"inputSchema": {"$schema": DRAFT_7, "type": "object", "properties": {"a": rule}}}


UNTAKEN = {
    "ahead": arguments({"type": "string", "not": {"pattern": "^P(?!$)"}}),
    "back": arguments({"patternProperties": {"^(a+)\\1$": {}}}),
    "elsewhere": arguments({"$ref": "https://example.com/x.json"}),
    "no_type": arguments({"type": "strng"}),
    "odd_result": {"outputSchema": {"type": "object", "properties": {"a": {"type": "strng"}}}},
    "no_object": {"inputSchema": {"anyOf": [{"type": "object"}]}},
    "half_a_pair": {"inputSchema": {"type": "object", "title": "\udfff"}},
    "half_a_name": {"outputSchema": {"type": "object", "properties": {"\udfff": {}}}},
}
TAKEN = {
    "plain": {"inputSchema": {"type": "object"}},
    # As the official SDK for TypeScript lists z.tuple and a bound of draft 4.
    "pair": arguments(PAIR),
    "above": arguments({"type": "number", "minimum": 0, "exclusiveMinimum": True}),
}
# As Zod lists z.email() and z.iso.duration().
E_MAIL = "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"
LEFT = {
    "e_mail": arguments({"type": "string", "format": "email", "pattern": E_MAIL}),
    "many_states": arguments({"type": "string", "maxLength": 5, "pattern": "^[\\p{L}\\p{N} ]{1,100}$"}),
}
CODE = """
import json, sys
TOOLS = %r
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    said = {"error": {"code": -32601, "message": "no method"}}
    if asked["method"] == "initialize":
        said = {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}}
    elif asked["method"] == "tools/list":
        said = {"result": {"tools": TOOLS}}
    elif asked["method"] == "tools/call":
        text = "called " + asked["params"]["name"]
        said = {"result": {"content": [{"type": "text", "text": text}]}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
"""


def plugin(folder: Path, tools: dict[str, Any]) -> Path:
    claims = {"annotations": {"readOnlyHint": True}}
    listed = [{"name": name, "description": f"The tool {name}.", **claims, **each} for name, each in tools.items()]
    mcp_plugin(folder)
    (folder / "server.py").write_text(CODE % listed)
    return folder


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    folder = tmp_path_factory.mktemp("schemas")
    allowed = "\n".join(f'[plugin.tools.{name}]\npermission = "allow"\nside_effects = "external"' for name in UNTAKEN)
    plugins = [
        (plugin(folder / "mixed", {**TAKEN, **LEFT, **UNTAKEN}), f'max_side_effects = "external"\n{allowed}'),
        (plugin(folder / "all_wrong", UNTAKEN), 'prefix = "wrong_"'),
    ]
    with running_sidecar(plugins, server="idle_stop_s = 0.2") as running:
        yield running


async def test_tools_whose_schemas_are_taken_serve_beside_those_whose_are_not(sidecar: Sidecar) -> None:
    async with sidecar.channel() as channel:
        caller = Caller(channel)
        tools = {name: tool for name, tool in (await caller.tools()).items() if tool.plugin == "mixed"}
        assert tools.keys() == TAKEN.keys() | LEFT.keys() | UNTAKEN.keys()
        reasons = {name: [each.code for each in tool.availability.reasons] for name, tool in tools.items()}
        assert reasons == {name: [] for name in (*TAKEN, *LEFT)} | {name: ["schema_invalid"] for name in UNTAKEN}
        (ahead,) = tools["ahead"].availability.reasons
        assert "`input_schema` has the pattern" in ahead.message
        (result,) = tools["odd_result"].availability.reasons
        assert "`output_schema` is not valid" in result.message
        (half,) = tools["half_a_pair"].availability.reasons
        assert "`input_schema` has no canonical JSON" in half.message

        assert await caller.text("plain") == "called plain"
        assert await caller.text("pair", a=[1, 2]) == "called pair"
        assert reason(await caller.call("pair", a=[1, 2, 3])) == "invalid_arguments"
        assert await caller.text("above", a=1) == "called above"
        assert reason(await caller.call("above", a=0)) == "invalid_arguments"


async def test_a_pattern_that_can_not_be_matched_is_left_to_the_server(sidecar: Sidecar) -> None:
    async with sidecar.channel() as channel:
        caller = Caller(channel)
        listed = json.loads((await caller.tools())["e_mail"].definition.input_schema_json)
        assert listed["properties"]["a"] == {"type": "string", "format": "email", "x-unchecked-pattern": E_MAIL}
        assert await caller.text("e_mail", a="ada@example.com") == "called e_mail"
        assert await caller.text("e_mail", a="..@") == "called e_mail", "which is the server's to refuse"
        assert reason(await caller.call("e_mail", a=5)) == "invalid_arguments"
        assert await caller.text("many_states", a="Ada") == "called many_states"
        assert reason(await caller.call("many_states", a="Augusta")) == "invalid_arguments"


@pytest.mark.parametrize("name", UNTAKEN)
async def test_tool_whose_schema_is_not_taken_is_never_called(sidecar: Sidecar, name: str) -> None:
    async with sidecar.channel() as channel:
        caller = Caller(channel)
        refused = await caller.call(name)
        assert refused.error.code == "TOOL_UNAVAILABLE", refused
        assert (await caller.tools())[name].definition.side_effects == tool_pb2.SIDE_EFFECTS_EXTERNAL, "as was set"


async def test_server_none_of_whose_schemas_is_taken_says_why_it_does_not_serve(sidecar: Sidecar) -> None:
    async with sidecar.channel() as channel:
        plugins = PluginServiceStub(channel)
        states = {each.name: each for each in (await plugins.ListPlugins(plugin_pb.ListPluginsRequest())).plugins}
    assert states["mixed"].state == plugin_pb.PLUGIN_STATE_SERVING
    assert states["all_wrong"].state == plugin_pb.PLUGIN_STATE_UNAVAILABLE
    assert {each.code for each in states["all_wrong"].reasons} == {"schema_invalid"}


def test_commands_tell_which_tool_can_not_be_called_and_why(sidecar: Sidecar, tmp_path: Path) -> None:
    folder = plugin(
        tmp_path / "mixed", {name: ({**TAKEN, **LEFT, **UNTAKEN})[name] for name in ("plain", "e_mail", "ahead")}
    )
    checked = fumehood("plugin", "check", folder)
    assert checked.status == 0, checked.stderr
    assert "ahead: it is listed as unavailable and can't be called" in " ".join(checked.stdout.split())
    assert "e_mail: the server alone checks patterns" in " ".join(checked.stdout.split())
    assert "/properties/a" in checked.stdout
    assert "plain:" not in checked.stdout

    (tmp_path / "fumehood.toml").write_text("")
    added = fumehood("plugin", "add", folder, "--yes", folder=tmp_path)
    assert added.status == 0, added.stderr
    assert "can't be called: `input_schema` has the pattern" in " ".join((added.stdout + added.stderr).split())
    pinned = json.loads((tmp_path / "fumehood.lock").read_text())["plugins"]["mixed"]["tools"]
    assert pinned["ahead"]["definition"]["side_effects"] == "none", "it asks for nothing"
    assert "has the pattern" in pinned["ahead"]["definition"]["schema_problem"]
    assert "schema_problem" not in pinned["plain"]["definition"]
    again = fumehood("plugin", "add", folder, "--yes", folder=tmp_path)
    assert "Exactly this is pinned already" in again.stdout, again

    shown = fumehood("tools", "e_mail", address=sidecar.target).stdout
    assert "which the server alone checks" in " ".join(shown.split())
    listed = fumehood("tools", "--all", address=sidecar.target).stdout
    assert "elsewhere can't be called" in " ".join(listed.split())
