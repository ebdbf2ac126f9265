"""`fumehood mcp import --dry-run` says what would be done, and does none of it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.command import fumehood
from tests.mcp_import import configurations

KEY = "sk-0123456789abcdefghij"


def test_each_server_is_told_with_what_it_could_do_before_and_may_do_now(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    servers = {
        "files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", str(folder)]},
        "keyed": {"command": "npx", "args": ["-y", "pkg"], "env": {"API_KEY": KEY, "URL": "https://api.example.com"}},
        "boxed": {"command": "docker", "args": ["run", "mcp/fetch"]},
        "far": {"type": "sse", "url": "https://api.example.com/mcp"},
        "off": {"command": "npx", "args": ["pkg"], "disabled": True, "comand": "x"},
        "Keyed": {"command": "npx", "args": ["pkg"]},
        "evil\x1b[31m/../x": {"command": "npx", "args": ["pkg\x1b[31m"]},
    }
    path = tmp_path / "mcp.json"
    text = json.dumps({"mcpServers": servers, "extra": 1})
    path.write_text(text)
    done = fumehood("mcp", "import", path, "--dry-run", "--json", folder=tmp_path)
    assert (done.status, KEY in done.stdout + done.stderr) == (1, False), done.stderr
    found = {each["server"]: each for each in done.json["servers"]}
    assert {name: each["status"] for name, each in found.items()} == {
        "files": "planned",
        "keyed": "planned",
        "boxed": "refused",
        "far": "refused",
        "off": "skipped",
        "Keyed": "refused",
        "evil\x1b[31m/../x": "refused",
    }
    assert "all of your files" in found["files"]["before"]
    assert (found["files"]["now"]["read"], found["files"]["now"]["write"]) == ([str(folder)], [])
    assert found["keyed"]["now"]["secrets"] == ["keyed-api-key"]
    assert found["keyed"]["now"]["hosts"] == ["api.example.com:443"]
    codes = {name: each["problem"]["code"] for name, each in found.items() if each["problem"]}
    assert codes == {
        "boxed": "container",
        "far": "transport",
        "Keyed": "name_taken",
        "evil\x1b[31m/../x": "not_a_package",
    }
    assert done.json["unknown_keys"] == ["extra"]
    assert found["off"]["notes"] == ["its key comand isn't known here"]
    shown = fumehood("mcp", "import", path, "--dry-run", folder=tmp_path)
    assert (shown.status, "\x1b[31m" in shown.stdout, KEY in shown.stdout) == (1, False, False)
    assert "now:    reads" in shown.stdout
    assert "before: everything that you may" in shown.stdout
    assert path.read_text() == text
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data", "mcp.json"]


def test_a_configuration_of_which_all_can_be_imported_is_status_0(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"a": {"command": "uvx", "args": ["mcp-server-time"]}}}')
    assert fumehood("mcp", "import", "mcp.json", "--dry-run", folder=tmp_path).status == 0
    (tmp_path / "empty.json").write_text('{"servers": {}}')
    done = fumehood("mcp", "import", "empty.json", "--yes", folder=tmp_path)
    assert (done.status, done.stdout) == (0, "There are no servers in it.\n")


def test_servers_of_claude_codes_other_projects_are_named(tmp_path: Path) -> None:
    entry = {"command": "uvx", "args": ["mcp-server-time"]}
    folders = [str(tmp_path), *(f"/srv/project-{number}" for number in range(9)), str(tmp_path / "site")]
    (tmp_path / "site").mkdir()
    projects = {each: {"mcpServers": {"local": entry}} for each in folders}
    (tmp_path / ".claude.json").write_text(json.dumps({"mcpServers": {"user": entry}, "projects": projects}))
    command = ("mcp", "import", ".claude.json", "--dry-run")
    found = fumehood(*command, "--json", folder=tmp_path).json
    assert [each["server"] for each in found["servers"]] == ["user", "local"]
    assert found["other_projects"] == folders[1:]
    shown = fumehood(*command, folder=tmp_path).stderr
    assert f"servers of {', '.join(folders[1:9])} and 2 more are not taken: --workspace FOLDER" in shown
    there = fumehood(*command, "--json", "--workspace", folders[-1], folder=tmp_path).json
    assert there["other_projects"] == folders[:-1]


def test_inputs_are_given_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".env").write_text("")
    (tmp_path / ".vscode" / "mcp.json").write_text(configurations.VSCODE.replace('"default": "eu"', '"x": 1'))
    command = ("mcp", "import", ".vscode/mcp.json", "--dry-run", "--json", "--server", "perplexity")
    done = fumehood(*command, folder=tmp_path)
    assert done.json["servers"][0]["problem"]["todo"] == "Give --input region=VALUE."
    done = fumehood(*command, "--input", "region=us", folder=tmp_path)
    assert (done.status, done.json["servers"][0]["now"]["secrets"]) == (0, ["perplexity-perplexity-api-key"])


def test_nobody_at_the_terminal_and_a_name_that_isnt_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"time": {"command": "uvx", "args": ["x"]}}}')
    done = fumehood("mcp", "import", "mcp.json", folder=tmp_path, stdin="")
    assert (done.status, "nobody to ask" in done.stderr) == (2, True)
    done = fumehood("mcp", "import", "mcp.json", "--json", folder=tmp_path)
    assert (done.status, done.error["message"]) == (2, "--json can't ask")
    done = fumehood("mcp", "import", "mcp.json", "--server", "tme", "--dry-run", "--json", folder=tmp_path)
    assert (done.status, done.error["code"], "time" in done.error["todo"]) == (2, "NOT_FOUND", True)
