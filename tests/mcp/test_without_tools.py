"""Servers that have resources or prompts and no tools: they are hosted for those."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fumehood.v1 import mcp_service_pb2 as pb
from fumehood.v1 import plugin_service_pb2 as plugin_pb
from fumehood.v1.mcp_service_pb2_grpc import McpServiceStub
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub

from tests.cli.command import fumehood
from tests.mcp.adapter_process import adapter_process
from tests.mcp.direct import direct_engine
from tests.mcp.support import Caller, mcp_plugin
from tests.sidecar import Sidecar, running_sidecar

CODE = """
import json, sys
REVISION, CAPABILITIES, LISTS = %r, %r, %r
CONTENTS = {"contents": [{"uri": "doc:a", "text": "hello"}]}
RESULTS = {
    "resources/list": {"resources": [{"uri": "doc:a", "name": "a"}]},
    "resources/read": CONTENTS,
    "prompts/list": {"prompts": [{"name": "ask"}]},
    "initialize": {"protocolVersion": REVISION, "capabilities": CAPABILITIES},
    "server/discover": {"supportedVersions": [REVISION], "capabilities": CAPABILITIES},
}
del RESULTS["server/discover" if REVISION == "2025-11-25" else "initialize"]
if LISTS is not None:
    RESULTS["tools/list"] = {"tools": LISTS}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == "resources/read":
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}), flush=True)
    found = RESULTS.get(asked["method"])
    said = {"result": found} if found else {"error": {"code": -32601, "message": "Method not found"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
"""
OLD, NEW = "2025-11-25", "2026-07-28"
RESOURCES: dict[str, object] = {"resources": {}, "prompts": {}}
TOOL = {"name": "one", "description": "One."}


def code(revision: str = OLD, capabilities: object = RESOURCES, lists: object = None) -> str:
    return CODE % (revision, capabilities, lists)


def plugin(folder: Path, text: str) -> Path:
    mcp_plugin(folder)
    (folder / "server.py").write_text(text)
    return folder


PLUGINS = {
    "old": code(),
    "new": code(NEW),
    "prompts": code(capabilities={"prompts": {}}),
    "empty": code(capabilities={**RESOURCES, "tools": {}}, lists=[]),
}


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    folder = tmp_path_factory.mktemp("without")
    plugins = [(plugin(folder / name, text), "") for name, text in PLUGINS.items()]
    plugins.append((plugin(folder / "nothing", code(capabilities={"tools": {}}, lists=[])), ""))
    plugins.append((plugin(folder / "shut", code()), 'max_side_effects = "none"'))
    with running_sidecar(plugins) as running:
        yield running


@pytest.mark.parametrize("name", ["old", "new", "empty"])
async def test_resources_of_a_server_without_tools_are_read(sidecar: Sidecar, name: str) -> None:
    async with sidecar.channel() as channel:
        mcp = McpServiceStub(channel)
        for _ in range(2):
            read = await mcp.ReadResource(pb.ReadResourceRequest(plugin=name, uri="doc:a"), timeout=60)
            assert [each.text for each in read.contents] == ["hello"], read
        listed = await mcp.ListPrompts(pb.ListPromptsRequest(plugin=name), timeout=60)
        assert [each.name for each in listed.prompts] == ["ask"]
        assert not [tool for tool in (await Caller(channel).tools()).values() if tool.plugin == name]


async def test_server_without_tools_serves_where_its_level_is_granted(sidecar: Sidecar) -> None:
    async with sidecar.channel() as channel:
        listed = await PluginServiceStub(channel).ListPlugins(plugin_pb.ListPluginsRequest())
        states = {each.name: (each.state, [reason.code for reason in each.reasons]) for each in listed.plugins}
        servers = await McpServiceStub(channel).ListMcpServers(pb.ListMcpServersRequest())
    assert states == {name: (plugin_pb.PLUGIN_STATE_SERVING, []) for name in PLUGINS} | {
        "nothing": (plugin_pb.PLUGIN_STATE_REFUSED, ["describe_failed"]),
        "shut": (plugin_pb.PLUGIN_STATE_UNAVAILABLE, ["level_not_granted"] * 5),
    }
    available = {each.plugin for each in servers.servers if each.availability.available}
    assert available == PLUGINS.keys()


def test_commands_pin_a_server_without_tools_and_say_its_level(tmp_path: Path) -> None:
    folder = plugin(tmp_path / "docs", code())
    checked = fumehood("plugin", "check", folder, "--json")
    assert checked.json["asks_for"]["side_effects"] == ["read"]
    assert checked.json["tools"] == []
    (tmp_path / "fumehood.toml").write_text("")
    added = fumehood("plugin", "add", folder, "--yes", folder=tmp_path)
    assert added.status == 0, added.stderr
    assert "It has no tools" in added.stdout


def test_tools_of_a_server_that_declares_nothing_at_all_are_taken_as_ever(tmp_path: Path) -> None:
    with adapter_process(tmp_path, code(capabilities={}, lists=[TOOL])) as adapter:
        frame = adapter.read()
        assert frame is not None, adapter.last_words()
        assert [each.name for each in frame.ready.tools] == ["one"]


def test_list_of_a_server_without_tools_is_not_looked_at_again(tmp_path: Path) -> None:
    """It has none: to ask for it is an error, which would end the server."""
    with direct_engine(tmp_path, code(), is_remote=True) as engine:
        for _ in range(2):
            assert engine.call("resources/read", '{"uri":"doc:a"}').content[0].text == "hello"
