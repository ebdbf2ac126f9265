"""What an import says: once what is common, as wide as the terminal, each level's approvals, how to get the rest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
import pytest
from fumehood_sandbox import Level
from fumehood_server.cli.mcp_import.outcome import Outcome, Status
from fumehood_server.cli.mcp_import.report import Report
from fumehood_server.cli.mcp_import.tool_hints import hint_at_tools
from fumehood_server.config.config import PluginConfig
from fumehood_server.model.plugin import Grants, ToolGrant
from fumehood_server.model.tool import TASK_REQUIRED, ToolDefinition

from tests.cli.command import fumehood, on_terminal


def tool(name: str, level: Level, *claims: str) -> ToolDefinition:
    return ToolDefinition(name=name, description="x", input_schema_json="{}", side_effects=level, claims=claims)


def hints(level: Level, *tools: ToolDefinition, hosts: tuple[str, ...] = (), plugin: PluginConfig | None = None) -> str:
    outcome = Outcome(server="x", now={"max_side_effects": str(level), "hosts": list(hosts)})
    hint_at_tools(outcome, tools, plugin)
    return "\n".join((*outcome.notes, *outcome.todo_later))


def test_a_reading_tool_that_may_need_the_network_is_said_to_have_none() -> None:
    fetch = tool("fetch", Level.READ, "readOnlyHint: true")
    said = hints(Level.READ, fetch)
    for line in ('max_side_effects = "external"', "[plugin.tools.fetch]", 'side_effects = "external"'):
        assert line in said
    assert not hints(Level.READ, tool("list", Level.READ, "readOnlyHint: true", "openWorldHint: false"))
    granted = hints(Level.EXTERNAL, fetch, hosts=("example.com:443",))
    assert "[plugin.tools.fetch]" in granted
    assert "hosts = " not in granted
    assert "one_process" not in said + granted
    plugin = PluginConfig(
        path=Path("/x"),
        grants=Grants(max_side_effects=Level.EXTERNAL),
        tools={"fetch": ToolGrant(side_effects=Level.EXTERNAL)},
    )
    assert not hints(Level.EXTERNAL, fetch, hosts=("example.com:443",), plugin=plugin)


def test_one_process_is_named_where_many_reading_tools_may_need_the_network() -> None:
    tools = [tool(name, Level.READ, "readOnlyHint: true") for name in ("a", "b")]
    outward = tool("c", Level.EXTERNAL)
    hosts = ("example.com:443",)
    assert "`one_process = true` beside the last two lines" in hints(Level.EXTERNAL, *tools, hosts=hosts)
    assert "`one_process = true` in place of the last two lines" in hints(Level.EXTERNAL, *tools, outward, hosts=hosts)
    shared = PluginConfig(path=Path("/x"), grants=Grants(max_side_effects=Level.EXTERNAL), one_process=True)
    assert not hints(Level.EXTERNAL, *tools, outward, hosts=hosts, plugin=shared)


def test_tools_of_level_external_without_a_host_are_said_to_have_no_network() -> None:
    send = tool("send", Level.EXTERNAL)
    said = hints(Level.EXTERNAL, send)
    assert "send: without network, since no host is granted" in said
    assert 'hosts = ["NAME:PORT"]' in said
    assert not hints(Level.EXTERNAL, send, hosts=("example.com:443",))
    above = hints(Level.READ, tool("list", Level.READ, "openWorldHint: false"), send)
    assert 'max_side_effects = "external"\n    hosts = ["NAME:PORT"]' in above


@pytest.mark.parametrize(
    ("level", "said"),
    [
        ("read", "no network: tools of level external alone would reach example.com:443"),
        ("external", "writes nothing; reaches example.com:443"),
        (None, "reaches example.com:443, by tools of level external"),
    ],
)
def test_hosts_are_said_to_be_reached_at_the_level_that_reaches_them_alone(
    capsys: pytest.CaptureFixture[str], level: str | None, said: str
) -> None:
    now = {"max_side_effects": level, "hosts": ["example.com:443"]}
    Report().print(Outcome(server="a", status=Status.IMPORTED, now=now))
    assert said in capsys.readouterr().out


def test_tools_above_what_is_granted_are_said_to_take_a_level() -> None:
    closed = tool("list", Level.READ, "openWorldHint: false")
    assert 'max_side_effects = "external"' in hints(
        Level.READ, closed, tool("a", Level.WRITE), tool("b", Level.EXTERNAL)
    )
    more, hosts = (tool("a", Level.WRITE), tool("b", Level.EXTERNAL)), ("example.com:443",)
    assert not hints(Level.EXTERNAL, closed, *more, hosts=hosts)


def test_a_tool_that_can_not_be_called_is_hinted_to_no_level() -> None:
    closed = tool("list", Level.READ, "openWorldHint: false")
    odd = replace(tool("odd", Level.NONE), schema_problem="`input_schema` is not valid")
    assert not hints(Level.READ, closed, odd)
    task = replace(odd, schema_problem="", claims=(TASK_REQUIRED,))
    assert not hints(Level.READ, closed, task)
    assert "odd:" in hints(Level.READ, closed, replace(odd, schema_problem=""))


def test_approvals_are_counted_by_level_and_what_is_common_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    tools = [
        {
            "name": name,
            "side_effects": level,
            "within_grants": True,
            "needs_approval": level == "write",
            "unavailable": None,
        }
        for name, level in (("a", "read"), ("b", "read"), ("c", "write"))
    ]
    report = Report()
    for name in ("one", "two"):
        report.print(Outcome(server=name, before="everything", now={}, tools=tools, notes=["the registry's address"]))
    said = capsys.readouterr().out
    assert "tools:  2 read; 1 write, each call on approval" in said
    assert (said.count("before:"), said.count("the registry's address"), said.count("now:")) == (1, 1, 2)


def test_lines_are_as_wide_as_the_terminal(tmp_path: Path) -> None:
    entry = {"command": "docker", "args": ["mcp", "gateway", "run"]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"all": entry}}))
    _, text = on_terminal("mcp", "import", "mcp.json", "--dry-run", folder=tmp_path)
    assert "coming-from-mcp-gateways.md" in text
    assert max(len(click.unstyle(line)) for line in text.splitlines()) <= 100


def test_a_file_that_is_not_there_is_said_before_that_there_is_nobody_to_ask(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    for name in ("bad.json", "missing.json"):
        done = fumehood("mcp", "import", name, folder=tmp_path, stdin="")
        assert (done.status, name in done.stderr, "nobody" in done.stderr) == (2, True, False), done.stderr


def test_that_a_host_is_assumed_is_said_once_and_in_json(tmp_path: Path) -> None:
    entry = {"command": "docker", "args": ["run", "x"]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"one": entry, "two": entry}}))
    command = ("mcp", "import", "mcp.json", "--dry-run")
    said = f"that {tmp_path}/mcp.json is Claude Code's is assumed, since it doesn't tell: --from names another program"
    assert fumehood(*command, folder=tmp_path).stdout.count(said) == 1
    assert [each["notes"] for each in fumehood(*command, "--json", folder=tmp_path).json["servers"]] == [[said]] * 2
    told = fumehood(*command, "--json", "--from", "claude-code", folder=tmp_path).json
    assert (told["host"], [each["notes"] for each in told["servers"]]) == ("claude-code", [[], []])


def test_the_root_help_tells_of_mcp_servers() -> None:
    said = fumehood("--help").stdout
    assert "fumehood mcp import" in said
    assert "fumehood mcp wrap" in said
