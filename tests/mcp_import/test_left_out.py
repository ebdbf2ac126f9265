"""What lies beside a server's code and is none, such as tokens of other servers, is copied into no plugin."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Done, fumehood
from tests.mcp_import import servers

TOKEN = "another-servers-token-1"  # noqa: S105 - of nobody
SERVER = servers.PYTHON + "\n\nrun()\n"


def write(path: Path, text: str = TOKEN) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def project(folder: Path, *, name: str = "mcp.json", arguments: Sequence[str] = (), **more: Mapping[str, Any]) -> Path:
    """A server's project, in which the host's configuration lies; another server of that has a token."""
    write(folder / "server.py", SERVER)
    write(folder / "pyproject.toml", '[project]\nname = "notes"\nversion = "1"\n')
    write(folder / "helper" / "more.py", "")
    notes = {"command": "uv", "args": ["run", str(folder / "server.py"), *arguments]}
    time = {"command": "docker", "args": ["run", "time"], "env": {"OTHER_TOKEN": TOKEN}}
    table = {"notes": notes, "time": time, **more}
    return write(folder / name, json.dumps({"mcpServers": table}))


def imported(file: Path, *options: str | Path, mode: str = "--yes", folder: Path | None = None) -> dict[str, Any]:
    done: Done = fumehood("mcp", "import", file, mode, "--json", *options, folder=folder or file.parent)
    found: dict[str, Any] = next(each for each in done.json["servers"] if each["server"] == "notes")
    return found


def copied(folder: Path, plugin: str = "mcp/notes") -> list[str]:
    code = folder / plugin / "code"
    return sorted(str(each.relative_to(code)) for each in code.rglob("*") if each.is_file())


def holding(folder: Path, text: str) -> set[str]:
    """Files that hold a text."""
    files = (each for each in folder.rglob("*") if each.is_file() and text.encode() in each.read_bytes())
    return {str(each.relative_to(folder)) for each in files}


CODE = ["helper/more.py", "pyproject.toml", "server.py"]


def test_another_servers_token_in_the_configuration_beside_the_code_stays_there(tmp_path: Path) -> None:
    found = imported(project(tmp_path))
    assert (found["status"], copied(tmp_path)) == ("imported", CODE), found
    assert holding(tmp_path, TOKEN) == {"mcp.json"}
    (said,) = [each for each in found["notes"] if each.startswith("left out of the copy of its code")]
    assert said.startswith("left out of the copy of its code: mcp.json (")


def test_the_configuration_is_left_out_whatever_its_name_and_whatever_leads_to_it(tmp_path: Path) -> None:
    code, host = tmp_path / "code", tmp_path / "host"
    file = project(code, name="servers-of-mine.json")
    (code / "hard.json").hardlink_to(file)
    (code / "soft.json").symlink_to(file.name)
    write(code / ".env")
    (code / "env.txt").symlink_to(".env")
    host.mkdir()
    (host / "link.json").symlink_to(file)
    found = imported(host / "link.json", folder=tmp_path)
    assert (found["status"], copied(tmp_path)) == ("imported", CODE), found
    assert holding(tmp_path / "mcp", TOKEN) == set()


@pytest.mark.parametrize(
    "name",
    ["mcp.json", "deep/er/MCP.json", "claude_desktop_config.json", "mcp.json.bak", "fumehood.toml", "fumehood.lock~"],
)
def test_files_of_the_names_that_hold_such_are_left_out_and_others_are_not(tmp_path: Path, name: str) -> None:
    code = tmp_path / "code"
    project(code, name="configuration.json")
    write(code / name)
    (code / "linked").symlink_to(name)
    write(code / "mcp.jsonl", "data")
    write(code / "my-mcp.json", "data")
    found = imported(code / "configuration.json", folder=tmp_path)
    assert (found["status"], copied(tmp_path)) == ("imported", sorted([*CODE, "mcp.jsonl", "my-mcp.json"])), found


BACKUPS = ["mcp.json~", "mcp.json.old", "mcp.json.bak.1", "mcp.json.~2~", "mcp_settings.json.2026-01-02"]
TABLES = [
    {"mcpServers": {}},
    {"servers": {}},
    {"context_servers": {}},
    {"mcp": {"servers": {}}},
    {"projects": {"/srv": {"mcpServers": {}}}},
]


def test_a_hosts_configuration_is_known_by_its_content_and_its_copies_by_their_endings(tmp_path: Path) -> None:
    code = tmp_path / "code"
    project(code, name="configuration.json")
    for number, table in enumerate(TABLES):
        write(code / str(number) / "mcp.json", f"// {TOKEN}\n{json.dumps(table)}")
    for name in BACKUPS:
        write(code / name, json.dumps({"mcpServers": {"time": {"env": {"TOKEN": TOKEN}}}}))
    write(code / "twice" / "mcp.json", '{"a": {"mcpServers": {}}, "a": 1}')
    write(code / "large" / "mcp.json", " " * 16 * 1024 * 1024 + "{}")
    write(code / "empty" / "mcp.json", "")
    found = imported(code / "configuration.json", folder=tmp_path)
    assert (found["status"], copied(tmp_path)) == ("imported", CODE), found


def test_what_only_has_the_name_of_a_hosts_configuration_is_copied(tmp_path: Path) -> None:
    code = tmp_path / "code"
    file = project(code, name="configuration.json", arguments=(str(code / "mcp_settings.json"),))
    own = [
        write(code / "mcp_settings.json", '{"theme": "dark", /* of its own */ "limits": {"notes": 8},}'),
        write(code / "data" / "mcp.json", "[1, 2]"),
        write(code / "src" / "mcp.json.ts", "export const servers = {}"),
        write(code / "node_modules" / "x" / "opencode.json", json.dumps({"mcpServers": {}})),
    ]
    found = imported(file, folder=tmp_path)
    names = [str(each.relative_to(code)) for each in own]
    assert (found["status"], copied(tmp_path)) == ("imported", sorted([*CODE, *names])), found
    # The file that is imported stays out, wherever it lies.
    (code / "node_modules" / "x" / "linked.json").hardlink_to(file)
    assert imported(file, folder=tmp_path)["status"] == "unchanged"


def test_a_package_of_the_project_that_lies_where_imports_are_written_is_copied(tmp_path: Path) -> None:
    write(tmp_path / "fumehood.toml", "")
    write(tmp_path / "mcp" / "__init__.py", "")
    write(tmp_path / "mcp" / "tools.py", "WORDS = 'own package'\n")
    file = project(tmp_path)
    write(tmp_path / "server.py", f"import mcp.tools\n{SERVER}")
    code = sorted([*CODE, "mcp/__init__.py", "mcp/tools.py"])
    for status in ("imported", "unchanged", "unchanged"):
        found = imported(file)
        assert (found["status"], copied(tmp_path)) == (status, code), found


def test_what_an_import_wrote_is_left_out_though_no_entry_names_it_any_more(tmp_path: Path) -> None:
    other = {"command": "python3", "args": [str(write(tmp_path / "more" / "server.py", SERVER))]}
    file = project(tmp_path, other=other)
    done = fumehood("mcp", "import", file, "--yes", "--json", "--server", "other", folder=tmp_path)
    assert done.json["servers"][0]["status"] == "imported", done.stdout
    for name in ("fumehood.toml", "fumehood.lock"):
        (tmp_path / name).unlink()
    found = imported(file)
    assert (found["status"], copied(tmp_path)) == ("imported", sorted([*CODE, "more/server.py"])), found


def test_what_the_sidecar_keeps_and_what_holds_variables_is_left_out_and_the_rest_is_not(tmp_path: Path) -> None:
    write(tmp_path / "data" / "kept")
    write(tmp_path / "operators.token").chmod(0o600)
    write(tmp_path / "production.env", f"LEVEL=low\nTHEIR_TOKEN={TOKEN}\n")
    other = {"command": "docker", "args": ["run", "x"], "envFile": str(tmp_path / "production.env")}
    file = project(tmp_path, other=other)
    config = '[server]\nstate_dir = "data"\n[secrets.own]\nfile = "operators.token"\n'
    write(tmp_path / "mine.toml", config)
    found = imported(file, "--config", tmp_path / "mine.toml")
    assert (found["status"], copied(tmp_path)) == ("imported", CODE), found
    assert holding(tmp_path / "mcp", TOKEN) == set()


@pytest.mark.parametrize("mode", ["--yes", "--dry-run"])
@pytest.mark.parametrize(
    ("named", "what"),
    [
        ("mcp.json", "a host's configuration"),
        ("mcp/theirs/own.py", "the folder of a plugin"),
        ("own.token", "own.token, which is copied into no plugin"),
    ],
)
def test_a_command_line_that_names_such_a_file_is_refused_by_name(
    tmp_path: Path, mode: str, named: str, what: str
) -> None:
    write(tmp_path / "own.token").chmod(0o600)
    write(tmp_path / "mcp" / "theirs" / "own.py")
    write(tmp_path / "mcp" / "theirs" / "plugin.toml", '[plugin]\nname = "theirs"\nversion = "1.0.0"\n')
    write(tmp_path / "fumehood.toml", '[[plugin]]\npath = "mcp/theirs"\n[secrets.own]\nfile = "own.token"\n')
    found = imported(project(tmp_path, arguments=(str(tmp_path / named),)), mode=mode)
    assert (found["status"], found["problem"]["code"]) == ("refused", "program"), found
    assert what in found["problem"]["message"]
    assert str(tmp_path / named) in found["problem"]["message"]
    assert not (tmp_path / "mcp" / "notes").exists()
    allowed = imported(project(tmp_path, arguments=(str(tmp_path / "helper/more.py"),)), mode=mode)
    assert allowed["status"] == ("imported" if mode == "--yes" else "planned"), allowed


def test_code_within_the_sidecars_state_is_refused(tmp_path: Path) -> None:
    code = tmp_path / "state" / "code"
    write(tmp_path / "fumehood.toml", '[server]\nstate_dir = "state"\n')
    found = imported(project(code), folder=tmp_path)
    assert (found["status"], found["problem"]["code"]) == ("refused", "program"), found
    assert f"{tmp_path}/state: it is the sidecar's state" in found["problem"]["message"]


@pytest.mark.parametrize("into", [None, "elsewhere/plugins", "."])
def test_a_project_that_holds_its_own_import_is_unchanged_until_it_is_edited(tmp_path: Path, into: str | None) -> None:
    more = {"command": "python3", "args": [str(write(tmp_path / "more" / "server.py", SERVER))]}
    file = project(tmp_path, second={**more, "args": [str(tmp_path / "server.py")]})
    options = () if into is None else ("--into", tmp_path / into)
    found = imported(file, *options)
    place = f"{into or 'mcp'}/notes"
    code = [*CODE, "more/server.py"]
    assert (found["status"], copied(tmp_path, place)) == ("imported", sorted(code)), found
    for _ in range(2):
        again = imported(file, *options)
        assert (again["status"], copied(tmp_path, place)) == ("unchanged", sorted(code)), again
    write(tmp_path / "helper" / "more.py", "edited = True\n")
    assert imported(file, *options)["status"] == "updated"
    assert (tmp_path / place / "code/helper/more.py").read_text() == "edited = True\n"


def test_other_plugins_of_the_configuration_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "theirs" / "plugin.toml", '[plugin]\nname = "theirs"\nversion = "1.0.0"\n')
    write(tmp_path / "fumehood.toml", '[[plugin]]\npath = "theirs"\n')
    found = imported(project(tmp_path))
    assert (found["status"], copied(tmp_path)) == ("imported", CODE), found


def test_what_an_earlier_import_copied_is_taken_out_of_the_copy(tmp_path: Path) -> None:
    file = project(tmp_path)
    imported(file)
    write(tmp_path / "mcp/notes/code/mcp.json")
    found = imported(file)
    assert (found["status"], copied(tmp_path)) == ("updated", CODE), found
    assert tomllib.loads((tmp_path / "fumehood.toml").read_text())["plugin"][0]["path"] == "mcp/notes"
