"""What a server says of its tools is what their processes can do: a server that lies is held by the kernel."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from fumehood.v1 import tool_pb2

from tests.cli.command import fumehood
from tests.mcp.conftest import Hosted
from tests.mcp.reach import as_plain_user, open_folders
from tests.mcp.support import Caller, mcp_plugin, reason
from tests.mcp.web import web_server
from tests.sidecar import running_sidecar

ALLOW = "permission = 'allow'"


@pytest.fixture
def home() -> Iterator[Path]:
    """Somebody's home, which is open to everybody, with a key."""
    with open_folders("home") as (folder,):
        key = folder / ".ssh" / "id_ed25519"
        key.parent.mkdir()
        key.write_text("a key")
        yield folder


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A web server of this machine."""
    with web_server() as started:
        yield started


def test_claims_levels_and_what_becomes_of_calls_are_shown_before_a_plugin_is_pinned(tmp_path: Path) -> None:
    mcp_plugin(tmp_path / "small")
    (tmp_path / "fumehood.toml").touch()

    def shown() -> tuple[dict[str, list[str]], list[str]]:
        """Level, calls and claims of each tool, and what a process of each level can do."""
        done = fumehood("plugin", "add", "small", "--yes", folder=tmp_path, more={"COLUMNS": "200"})
        assert done.status == 0, done.stderr
        table, costs, *_ = done.stdout[done.stdout.index("TOOL ") :].split("\n\n")
        rows = [re.split(r" {2,}", row.strip()) for row in table.splitlines()]
        assert rows[0] == ["TOOL", "LEVEL", "CALLS", "CLAIMS"]
        return {tool: cells for tool, *cells in rows[1:]}, [line.strip() for line in costs.splitlines()]

    refused = "are refused: max_side_effects = read"
    for _ in range(2):  # newly, and as it stands in fumehood.toml
        tools, costs = shown()
        assert tools["fetch"] == ["external", refused, "nothing"]
        assert tools["count_up"] == ["write", refused, "not openWorld"]
        assert tools["write_file"] == ["write", refused, "not readOnly, destructive, idempotent, not openWorld"]
        assert tools["ask_client"] == ["read", "run", "readOnly, openWorld"]
        assert costs == [
            "What a process of theirs can do at most, by level:",
            "external  read and write granted paths, reach granted hosts by proxy",
            "write     read and write granted paths; no network",
            "read      read granted paths; no writing, no network",
        ]
    with (tmp_path / "fumehood.toml").open("a") as file:
        file.write(
            'max_side_effects = "write"\n[plugin.tools.write_file]\npermission = "allow"\n'
            '[plugin.tools.ask_client]\npermission = "deny"\n'
        )
    text = (tmp_path / "fumehood.toml").read_text().replace('max_side_effects = "read"\n', "")
    (tmp_path / "fumehood.toml").write_text(text)
    tools, _ = shown()
    assert (tools["ask_client"][1], tools["write_file"][1]) == ("are denied", "run")


async def test_tool_that_claims_to_read_only_can_not_write(caller: Caller, hosted: Hosted) -> None:
    path = hosted.writable / "file"
    assert await caller.text("write_file", path=str(path), text="by the one that says so") == "written"
    result = await caller.call("sneaky_write", path=str(path), text="by the liar")
    assert reason(result) == "tool_error"
    assert path.read_text() == "by the one that says so"
    assert result.sandbox.side_effects == tool_pb2.SIDE_EFFECTS_READ


async def test_tool_that_reads_sees_what_its_siblings_write_and_nothing_else(
    caller: Caller, hosted: Hosted, home: Path
) -> None:
    key = home / ".ssh" / "id_ed25519"
    with as_plain_user():
        assert key.read_text() == "a key", "outside, anybody may read it"
    (hosted.writable / "shared").write_text("written")
    assert await caller.text("read_file", path=str(hosted.readable / "note")) == "a note"
    assert await caller.text("read_file", path=str(hosted.writable / "shared")) == "written"
    for path in (str(key), "~/.ssh/id_ed25519", "/etc/shadow"):
        result = await caller.call("read_file", path=path)
        assert reason(result) == "tool_error"
        assert "No such file or directory" in result.error.message, "what was not granted is not there"


async def test_tool_that_claims_to_read_only_dials_nobody(caller: Caller, port: int) -> None:
    socket.create_connection(("127.0.0.1", port), 2).close()  # it is there
    assert reason(await caller.call("dial", host="127.0.0.1", port=port)) == "tool_error"


async def test_network_is_for_external_tools_and_granted_hosts(tmp_path: Path, port: int) -> None:
    folder = mcp_plugin(tmp_path / "net")
    grants = f"""
max_side_effects = "external"
hosts = ["127.0.0.1:{port}"]
allow_private = ["127.0.0.1"]
[plugin.tools.fetch]
{ALLOW}
"""
    with running_sidecar([(folder, grants)]) as sidecar:
        async with sidecar.channel() as channel:
            caller = Caller(channel)
            assert await caller.text("fetch", url=f"http://127.0.0.1:{port}/") == "page"
            assert reason(await caller.call("fetch", url=f"http://127.0.0.1:{port + 1}/")) == "tool_error"
            assert reason(await caller.call("sneaky_fetch", url=f"http://127.0.0.1:{port}/")) == "tool_error"
            tools = await caller.tools()
            assert [*tools["fetch"].definition.requires] == ["proxy"]
            assert [*tools["sneaky_fetch"].definition.requires] == []


async def test_caller_of_a_call_that_failed_is_told_where_it_was_not_let_go(tmp_path: Path, port: int) -> None:
    folder = mcp_plugin(tmp_path / "net", more="concurrency = 1")
    grants = f"""
max_side_effects = "external"
one_process = true
hosts = ["127.0.0.1:{port}"]
allow_private = ["127.0.0.1"]
[plugin.tools.fetch]
{ALLOW}
"""
    refused = {"host": "127.0.0.1", "port": port + 1, "reason": "host_not_granted"}
    with running_sidecar([(folder, grants)]) as sidecar:
        async with sidecar.channel() as channel:
            caller = Caller(channel)
            for _ in range(2):
                result = await caller.call("fetch", url=f"http://127.0.0.1:{port + 1}/")
                assert json.loads(result.error.details_json)["refused_hosts"] == [refused]
            result = await caller.call("fail", how="tool")
            assert json.loads(result.error.details_json) == {"reason": "tool_error"}
            assert await caller.text("fetch", url=f"http://127.0.0.1:{port}/") == "page"


async def test_who_says_nothing_needs_an_approval(caller: Caller) -> None:
    tools = await caller.tools()
    assert tools["fetch"].permission == tool_pb2.PERMISSION_REQUIRE_APPROVAL
    assert tools["read_file"].permission == tool_pb2.PERMISSION_ALLOW


async def test_operator_sets_a_tools_level_and_whether_it_may_be_repeated(tmp_path: Path) -> None:
    writable = tmp_path / "writable"
    writable.mkdir()
    writable.chmod(0o777)
    folder = mcp_plugin(tmp_path / "own")
    grants = f"""
max_side_effects = "write"
write = ["{writable}"]
[plugin.tools.sneaky_write]
side_effects = "write"
idempotent = true
{ALLOW}
[plugin.tools.environment]
side_effects = "read"
"""
    with running_sidecar([(folder, grants)]) as sidecar:
        async with sidecar.channel() as channel:
            caller = Caller(channel)
            assert await caller.text("sneaky_write", path=str(writable / "file"), text="a") == "written"
            assert await caller.text("environment", name="HOME") == "/tmp"  # noqa: S108 - the sandbox's own
            tools = await caller.tools()
            assert tools["sneaky_write"].definition.idempotent
            assert [each.code for each in tools["fetch"].availability.reasons] == ["level_not_granted"]


async def test_levels_have_processes_of_their_own_unless_the_operator_wants_one(tmp_path: Path) -> None:
    apart, together = mcp_plugin(tmp_path / "apart"), mcp_plugin(tmp_path / "together")
    grants = f'max_side_effects = "write"\n[plugin.tools.count_up]\n{ALLOW}\n'
    with running_sidecar([(apart, grants), (together, f'prefix = "one_"\none_process = true\n{grants}')]) as sidecar:
        async with sidecar.channel() as channel:
            caller = Caller(channel)
            assert [await caller.text("count_up"), await caller.text("count")] == ["1", "0"]
            assert [await caller.text("one_count_up"), await caller.text("one_count")] == ["1", "1"]
            result = await caller.call("one_count")
            layers = {layer.name: layer for layer in result.sandbox.layers}
            assert layers["levels"].weaker
            assert result.sandbox.side_effects == tool_pb2.SIDE_EFFECTS_WRITE
            assert "levels" not in {layer.name for layer in (await caller.call("count")).sandbox.layers}


async def test_call_isolation_starts_the_server_anew(tmp_path: Path) -> None:
    folder = mcp_plugin(tmp_path / "anew", more='isolation = "call"')
    with running_sidecar([(folder, f'max_side_effects = "write"\n[plugin.tools.count_up]\n{ALLOW}\n')]) as sidecar:
        async with sidecar.channel() as channel:
            caller = Caller(channel)
            assert [await caller.text("count_up"), await caller.text("count_up")] == ["1", "1"]


async def test_settings_of_servers_are_refused_for_other_kinds(tmp_path: Path) -> None:
    folder = tmp_path / "dice"
    folder.mkdir()
    code = "from fumehood_sdk import Plugin\nplugin = Plugin('dice', version='1')\n@plugin.tool(side_effects='none')\n"
    (folder / "dice.py").write_text(code + "def roll() -> int:\n    '''Rolls a die of six sides.'''\n    return 4\n")
    head = '[plugin]\nname = "dice"\nversion = "1"\nkind = "python"\nentrypoint = "dice:plugin"\n'
    (folder / "plugin.toml").write_text(head)
    with running_sidecar([(folder, '[plugin.tools.roll]\nside_effects = "none"\n')]) as sidecar:
        line = sidecar.logged(event="plugin_refused", plugin="dice")
        assert "`side_effects`" in json.dumps(line)
