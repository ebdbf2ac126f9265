"""Fumehood's own entry in a configuration is told from servers, and the host's working directory from secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fumehood_server.cli.mcp_import.host_configuration import Host
from fumehood_server.cli.mcp_import.launchers import NotImportableError, parse_command
from fumehood_server.cli.mcp_import.secret_values import looks_like_a_secret
from fumehood_server.cli.mcp_import.variables import Scope, expand

from tests.cli.command import fumehood

OWN = "it is Fumehood's own entry"


@pytest.mark.parametrize(
    "line",
    [
        ["fumehood", "mcp", "--address", "unix:/x"],
        ["/srv/.venv/bin/fumehood", "mcp"],
        ["/usr/bin/python3.12", "-P", "-m", "fumehood_server", "mcp"],
        ["env", "A=b", "fumehood", "mcp"],
        ["uvx", "--from", "fumehood-server", "fumehood", "mcp"],
        ["fumehood", "mcp", "wrap", "--read", "/srv", "--", "npx", "-y", "pkg"],
    ],
)
def test_fumehoods_own_entry_is_known(line: list[str]) -> None:
    with pytest.raises(NotImportableError) as caught:
        parse_command(line[0], line[1:])
    assert (caught.value.code, caught.value.reason.startswith(OWN)) == ("own_entry", True)
    assert ("already" in caught.value.reason) == ("wrap" in line)


def test_fumehoods_own_entries_are_skipped_when_a_configuration_is_imported_again(tmp_path: Path) -> None:
    servers = {
        "fumehood": {"command": "/srv/bin/fumehood", "args": ["mcp", "--address", "unix:/x"]},
        "held": {"command": "fumehood", "args": ["mcp", "wrap", "--", "npx", "-y", "pkg"]},
    }
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    done = fumehood("mcp", "import", ".mcp.json", "--yes", "--json", folder=tmp_path)
    assert done.status == 0, done.stderr
    assert [(each["status"], each["problem"]["code"]) for each in done.json["servers"]] == [
        ("skipped", "own_entry")
    ] * 2
    assert not (tmp_path / "fumehood.toml").exists()


def test_fumehood_is_not_wrapped(tmp_path: Path) -> None:
    done = fumehood("mcp", "wrap", "--", "fumehood", "mcp", folder=tmp_path, more={"XDG_STATE_HOME": str(tmp_path)})
    assert (done.status, "it is Fumehood itself" in done.stderr, "behind --" in done.stderr) == (1, True, True)


def test_the_working_directory_is_no_secret_and_is_the_workspace(tmp_path: Path) -> None:
    for host, text in ((Host.CLAUDE_CODE, "${PWD}"), (Host.CLAUDE_CODE, "${PWD:-/x}"), (Host.VSCODE, "${env:PWD}")):
        environment = {"PWD": "/of/the/import"}
        found = expand(f"{text}/x", Scope(host=host, environment=environment, workspace=tmp_path))
        assert (found.text, found.secret) == (f"{tmp_path}/x", False)
        assert expand(text, Scope(host=host, environment=environment)).text == str(Path.cwd())
    old = expand("${OLDPWD}", Scope(host=Host.CLAUDE_CODE, environment={"OLDPWD": "/old"}))
    assert (old.text, old.secret) == ("/old", False)
    assert expand("${DB_PWD}", Scope(host=Host.CLAUDE_CODE, environment={"DB_PWD": "x"})).secret
    assert [looks_like_a_secret(name, "some value") for name in ("PWD", "OLDPWD", "pwd", "DB_PWD")] == [
        False, False, True, True,
    ]  # fmt: skip


def test_a_server_that_names_the_working_directory_is_planned(tmp_path: Path) -> None:
    entry = {"command": "npx", "args": ["-y", "pkg", "${PWD}"], "env": {"PROJECT_ROOT": "${PWD}"}}
    site = tmp_path / "site"
    site.mkdir()
    (site / ".mcp.json").write_text(json.dumps({"mcpServers": {"files": entry}}))
    config = ("--config", tmp_path / "fumehood.toml")
    done = fumehood("mcp", "import", ".mcp.json", "--dry-run", "--json", *config, folder=site)
    (found,) = done.json["servers"]
    assert found["status"] == "planned", found["problem"]
    assert found["now"]["read"] == [str(site)]
    assert (found["now"]["variables"], found["now"]["secrets"]) == (["PROJECT_ROOT"], [])
