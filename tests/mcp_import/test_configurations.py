"""Each host's configuration is read by that host's rules, and whatever is wrong with one server stays with it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.mcp_import.host_configuration import (
    Host,
    HostConfiguration,
    ServerEntry,
    read_host_configuration,
)
from fumehood_server.cli.mcp_import.json_document import MAX_BYTES, read_json_document
from fumehood_server.cli.mcp_import.names import plugin_name, secret_name
from fumehood_server.cli.mcp_import.variables import Scope, expand

from tests.mcp_import import configurations


def read(path: Path, text: str, **options: Any) -> HostConfiguration:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return read_host_configuration(path, **options)


def by_name(configuration: HostConfiguration) -> dict[str, ServerEntry]:
    return {each.name: each for each in configuration.servers}


def test_claude_desktops_servers_are_read_and_nothing_is_expanded(tmp_path: Path) -> None:
    found = read(tmp_path / "claude_desktop_config.json", configurations.CLAUDE_DESKTOP)
    servers = by_name(found)
    assert (found.host, found.unknown, found.workspace) == (Host.CLAUDE_DESKTOP, (), None)
    assert servers["filesystem"].command == "npx"
    assert servers["filesystem"].arguments[-1] == "/srv/more data"
    scope = Scope(host=found.host, environment={"GITHUB_TOKEN": "ghp_0123456789"})
    variable = expand(servers["github"].environment["GITHUB_PERSONAL_ACCESS_TOKEN"], scope)
    assert variable.text == "${GITHUB_TOKEN}"


def test_vscodes_servers_inputs_comments_and_sandbox_are_read(tmp_path: Path) -> None:
    found = read(tmp_path / "project" / ".vscode" / "mcp.json", configurations.VSCODE)
    servers = by_name(found)
    assert (found.host, found.unknown, found.workspace) == (Host.VSCODE, (), tmp_path / "project")
    assert found.inputs["perplexity-key"].password
    assert found.inputs["model"].options == ("small", "large")
    asked = servers["perplexity"]
    assert asked.environment_file == "${workspaceFolder}/.env"
    assert asked.environment["PORT"] == "8080"
    assert "PATH" not in asked.environment
    assert (servers["context7"].url, servers["context7"].transport) == ("https://mcp.context7.com/mcp", "http")
    boxed = servers["boxed"]
    assert (boxed.sandboxed, boxed.sandbox_write) == (True, ("${workspaceFolder}",))
    assert boxed.sandbox_hosts == ("api.example.com", "*.cdn.example.com")
    assert (boxed.not_taken, boxed.unknown) == (("dev", "sandbox", "sandboxEnabled"), ())
    scope = Scope(host=found.host, environment={}, inputs=found.inputs, workspace=found.workspace)
    assert [expand(each, scope).text for each in asked.arguments[2:]] == ["--region", "eu", f"{found.workspace}/notes"]
    key = expand(asked.environment["PERPLEXITY_API_KEY"], scope)
    assert (key.text, key.secret, key.asked) == ("", True, ("perplexity-key",))


def test_vscodes_settings_hold_servers_too(tmp_path: Path) -> None:
    inner = json.loads('{"mcp": {"servers": {"a": {"command": "npx", "args": ["x"]}}}, "editor.fontSize": 12}')
    found = read(tmp_path / "settings.json", json.dumps(inner))
    assert (found.host, [each.name for each in found.servers], found.unknown) == (Host.VSCODE, ["a"], ())


def test_cursors_servers_are_read_and_its_variables_expanded(tmp_path: Path) -> None:
    found = read(tmp_path / "project" / ".cursor" / "mcp.json", configurations.CURSOR)
    servers = by_name(found)
    assert (found.host, found.workspace) == (Host.CURSOR, tmp_path / "project")
    scope = Scope(host=found.host, environment={"MODE": "fast"}, workspace=found.workspace, home=Path("/home/ada"))
    local = servers["local"]
    assert [expand(each, scope).text for each in local.arguments] == [
        f"{tmp_path}/project/server/index.js",
        "/home/ada/notes",
        "/srv",
    ]
    assert expand(local.environment["MODE"], scope).text == "fast"
    key = expand(local.environment["API_KEY"], scope)
    assert (key.text, key.variable, key.secret, key.unset) == ("", "MY_API_KEY", True, ("MY_API_KEY",))
    assert (servers["remote"].url, servers["remote"].transport) == ("https://api.example.com/mcp", "http")


def test_claude_codes_servers_are_read_and_its_defaults_taken(tmp_path: Path) -> None:
    found = read(tmp_path / ".mcp.json", configurations.CLAUDE_CODE)
    servers = by_name(found)
    assert (found.host, found.workspace) == (Host.CLAUDE_CODE, tmp_path)
    scope = Scope(host=found.host, environment={"LEVEL": "", "PLAIN": "no"})
    paths = servers["paths"]
    default, plain, unset = (expand(each, scope) for each in paths.arguments[2:])
    assert (default.text, plain.text, unset.unset) == ("/srv/data", "$PLAIN", ("DATA_FOLDER",))
    assert [expand(paths.environment[name], scope).text for name in ("CACHE", "LEVEL")] == ["", "info"]
    assert {each.name: each.transport for each in found.servers} == {"paths": "", "events": "sse", "streams": "http"}
    assert servers["streams"].unknown == ()


def claude_json(mine: Path, other: Path, **more: Any) -> str:
    """As `claude mcp add` writes it: without a scope to the project's table, and with `--scope user` to the top."""

    def server(word: str) -> dict[str, Any]:
        return {"type": "stdio", "command": "npx", "args": ["-y", word], "env": {}}

    projects = {
        str(mine): {"allowedTools": [], "mcpServers": {"local": server("local"), "both": server("of-the-project")}},
        str(other): {"mcpServers": {"elsewhere": server("elsewhere")}},
        "/without": {"mcpServers": {}},
    }
    return json.dumps({"numStartups": 3, "projects": projects, **more})


def test_claude_codes_local_servers_are_the_projects_and_win_over_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    users = {name: {"command": "npx", "args": ["-y", "of-the-user"]} for name in ("both", "user")}
    text = claude_json(mine, other, mcpServers=users)
    by_option = read(tmp_path / ".claude.json", text, workspace=mine)
    monkeypatch.chdir(mine)
    by_folder = read(tmp_path / ".claude.json", text)
    assert by_option == by_folder
    assert (by_folder.host, by_folder.workspace, by_folder.unknown) == (Host.CLAUDE_CODE, mine, ())
    packages = {name: server.arguments[-1] for name, server in by_name(by_folder).items()}
    assert packages == {"both": "of-the-project", "user": "of-the-user", "local": "local"}
    assert by_folder.other_projects == (str(other),)
    monkeypatch.chdir(tmp_path)
    found = read(tmp_path / ".claude.json", text)
    assert ([*by_name(found)], found.workspace) == (["both", "user"], None)
    assert found.other_projects == (str(mine), str(other))


def test_claude_codes_local_servers_are_found_without_any_of_the_users(tmp_path: Path) -> None:
    text = claude_json(tmp_path / "mine", tmp_path / "other")
    found = read(tmp_path / ".claude.json", text, workspace=tmp_path / "mine")
    assert [*by_name(found)] == ["local", "both"]
    with pytest.raises(CommandError, match=f"other projects alone: {tmp_path}/mine, {tmp_path}/other$") as caught:
        read(tmp_path / ".claude.json", text, workspace=tmp_path)
    assert "--workspace FOLDER" in caught.value.todo


@pytest.mark.parametrize(
    ("path", "text", "host"),
    [
        ("mcp.json", '{"servers": {}}', Host.VSCODE),
        ("mcp.json", '{"mcpServers": {"a": {"command": "x", "args": ["${env:A}"]}}}', Host.CURSOR),
        ("mcp.json", '{"mcpServers": {"a": {"command": "x", "args": ["${A}"]}}}', Host.CLAUDE_CODE),
        (".cursor/mcp.json", '{"mcpServers": {}}', Host.CURSOR),
        (".claude.json", '{"mcpServers": {}, "history": [1]}', Host.CLAUDE_CODE),
        ("claude_desktop_config.json", '{"mcpServers": {"a": {"command": "${env:A}"}}}', Host.CLAUDE_DESKTOP),
    ],
)
def test_the_host_is_told_by_name_and_keys(tmp_path: Path, path: str, text: str, host: Host) -> None:
    assert read(tmp_path / path, text).host is host
    assert read(tmp_path / path, text, host=Host.CURSOR).host is Host.CURSOR


def test_a_host_that_nothing_tells_is_said_to_be_assumed(tmp_path: Path) -> None:
    plain = '{"mcpServers": {"a": {"command": "docker", "args": ["run", "x"]}}}'
    for path, text, assumed in (
        ("mcp.json", plain, True),
        (".mcp.json", plain, False),
        ("mcp.json", plain.replace('"x"', '"${env:A}"'), False),
        ("mcp.json", plain.replace("mcpServers", "servers"), False),
    ):
        assert read(tmp_path / path, text).is_assumed is assumed, (path, text)
        assert read(tmp_path / path, text, host=Host.CLAUDE_CODE).is_assumed is False


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1, // one\n}', {"a": 1}),
        ('{"a": [1, 2, /* , */ ], }', {"a": [1, 2]}),
        ('\ufeff{"url": "http://x//y", "s": "/* no */ , ]"}', {"url": "http://x//y", "s": "/* no */ , ]"}),
        ('{"s": "a\\"// b, }"}', {"s": 'a"// b, }'}),
    ],
)
def test_comments_and_trailing_commas_are_no_part_of_the_document(tmp_path: Path, text: str, value: object) -> None:
    (tmp_path / "mcp.json").write_text(text)
    assert read_json_document(tmp_path / "mcp.json").value == value


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is not JSON"),
        ('{"mcpServers": {}', "mcp.json:1: is not JSON"),
        ("{}", "neither `mcpServers` nor `servers`"),
        ("[]", "no JSON object"),
        ('{"a":' * 100_000, "nests too deeply"),
        ('{"a": 1' + "0" * 10_000 + "}", "a number that can't be read"),
        ("/*" * 200_000, "is not JSON"),
        ('"\\' * 200_000, "is not JSON"),
        ('{"servers": {' + ",".join(f'"{number}": 1' for number in range(257)) + "}}", "at most 256"),
    ],
    ids=["empty", "cut", "servers", "list", "deep", "number", "comments", "strings", "many"],
)
def test_what_is_no_configuration_is_refused(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(CommandError) as caught:
        read(tmp_path / "mcp.json", text)
    assert what in caught.value.what


def test_a_file_of_100_mib_and_one_that_never_ends_are_refused_unread(tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    with pytest.raises(CommandError, match=f"more than {MAX_BYTES} bytes"):
        read_host_configuration(large)
    os.mkfifo(tmp_path / "fifo.json")
    with pytest.raises(CommandError, match="not a regular file"):
        read_host_configuration(tmp_path / "fifo.json")


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (1, "no JSON object"),
        ({}, "neither `command` nor `url`"),
        ({"command": ["npx"]}, "`command` is no text"),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "x", "args": "y"}, "no list"),
        ({"command": "x", "args": [["y"]]}, "no list"),
        ({"command": "x", "args": ["y"] * 64}, "at most 63"),
        ({"command": "x", "args": ["y" * 40_000]}, "40000 characters"),
        ({"command": "x", "env": {"A": ["b"]}}, "`env.A` is no text"),
        ({"command": "x", "env": {f"A{number}": "" for number in range(65)}}, "at most 64"),
        ({"command": "\ud800"}, "lone surrogate"),
    ],
)
def test_a_server_that_cant_be_read_doesnt_stop_the_others(tmp_path: Path, table: object, problem: str) -> None:
    text = json.dumps({"mcpServers": {"bad": table, "good": {"command": "npx", "args": ["x"]}}})
    servers = by_name(read(tmp_path / "mcp.json", text))
    assert problem in servers["bad"].problem
    assert servers["good"].problem == ""


def test_unknown_and_repeated_keys_are_named(tmp_path: Path) -> None:
    text = (
        '{"mcpServers": {"a": {"command": "x", "comand": "y", "autoApprove": ["*"]}, "a": {"command": "x", "q": 1,'
        ' "autoApprove": []}}, "more": 1}'
    )
    found = read(tmp_path / "mcp.json", text)
    assert (found.unknown, found.twice) == (("more",), ("a",))
    assert [(each.unknown, each.not_taken) for each in found.servers] == [(("q",), ("autoApprove",))]


def test_references_are_expanded_once_so_that_cycles_end(tmp_path: Path) -> None:
    code = Scope(host=Host.CLAUDE_CODE, environment={"A": "${B}", "B": "${A}", "SECRET": "s"})
    assert expand("${A} ${B}", code).text == "${B} ${A}"
    assert expand("${X:-${SECRET}}", code).problems
    cycle = [{"id": "a", "default": "${input:b}"}, {"id": "b", "default": "${input:a}"}]
    inputs = read(tmp_path / "mcp.json", json.dumps({"servers": {}, "inputs": cycle})).inputs
    found = expand("${input:a}", Scope(host=Host.VSCODE, environment={}, inputs=inputs))
    assert (found.text, len(found.problems)) == ("", 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("${workspaceFolder}/x", "--workspace"),
        ("${command:extension.pick}", "known to its host alone"),
        ("${file}", "known to its host alone"),
        ("${input:missing}", "names no missing"),
    ],
)
def test_references_that_mean_nothing_here_are_named(text: str, problem: str) -> None:
    found = expand(text, Scope(host=Host.VSCODE, environment={}))
    assert problem in found.problems[0]


@pytest.mark.parametrize(
    ("name", "plugin"),
    [
        ("filesystem", "filesystem"),
        ("My Server", "my-server"),
        ("uiTesting", "ui-testing"),
        ("../../etc/passwd", "etc-passwd"),
        ("a/b\x1b[31m\n", "a-b-31m"),
        ("7zip", "mcp-7zip"),
        ("日本", "server"),
        ("", "server"),
        ("x" * 200, "x" * 64),
        ("--", "server"),
    ],
)
def test_any_name_becomes_a_plugins_name(name: str, plugin: str) -> None:
    assert plugin_name(name) == plugin


def test_secrets_are_named_by_plugin_and_variable() -> None:
    assert secret_name("github", "GITHUB_TOKEN") == "github-github-token"
    assert re.fullmatch(r"a{51}\.[0-9a-f]{12}", secret_name("a" * 64, "B\n/C"))
