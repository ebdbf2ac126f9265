"""Servers are imported from their registries, installed once, granted what was asked for, and called through a sidecar.

The configuration is Claude Code's; one sidecar serves what it led to.
"""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Done, fumehood
from tests.mcp_import import servers
from tests.mcp_import.npm_registry import NpmRegistry, npm_registry
from tests.plugins.wheels import index_environment, make_wheel
from tests.sidecar import running_sidecar

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm: `make setup` gets it")
KEY = "sk-0123456789abcdefghij"


@dataclass
class Imported:
    """A folder with a configuration that was imported."""

    folder: Path
    environment: dict[str, str]
    servers: dict[str, Any]
    done: Done

    def run(self, *arguments: str, **more: Any) -> Done:
        return fumehood("mcp", "import", *arguments, folder=self.folder, more=self.environment, **more)

    def outcome(self, server: str) -> dict[str, Any]:
        found: dict[str, Any] = next(each for each in self.done.json["servers"] if each["server"] == server)
        return found

    def write(self, servers: dict[str, Any]) -> None:
        (self.folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))


@pytest.fixture(scope="module")
def registry() -> Iterator[NpmRegistry]:
    with npm_registry() as found:
        found.publish("@scope/notes", "1.0.0", {"index.js": servers.NODE}, bin={"notes": "index.js"})
        yield found


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory, registry: NpmRegistry) -> Imported:
    folder = tmp_path_factory.mktemp("imported")
    index = folder / "dist"
    points = "[console_scripts]\nwho-server = who:run\n"
    make_wheel(index, "who", files={"who.py": servers.PYTHON, "who-1.0.0.dist-info/entry_points.txt": points})
    notes = folder / "notes"
    notes.mkdir()
    (notes / "first").write_text("")
    notes.chmod(0o777)
    (folder / "fumehood.toml").write_text('[egress]\nallow_private = ["127.0.0.1"]\n')
    table = {
        "notes": {
            "command": "npx",
            "args": ["-y", "@scope/notes", "${NOTES}"],
            "env": {"LEVEL": "high", "API_KEY": KEY, "SOME_VARIABLE": "${SOME_VARIABLE:-set}"},
        },
        "who am I": {"command": "uvx", "args": ["--from", "who", "who-server", "--flag"]},
        "far": {"type": "sse", "url": "https://api.example.com/mcp"},
    }
    environment = {**registry.environment, **index_environment(index), "NOTES": str(notes)}
    found = Imported(folder, environment, table, Done(0, "", ""))
    found.write(table)
    found.done = found.run(".mcp.json", "--yes", "--json")
    return found


def test_each_server_is_installed_granted_and_pinned(imported: Imported) -> None:
    assert imported.done.status == 1, imported.done.stderr  # of the one that is far away
    assert KEY not in imported.done.stdout + imported.done.stderr
    notes, who, far = (imported.outcome(name) for name in ("notes", "who am I", "far"))
    assert [each["status"] for each in (notes, who, far)] == ["imported", "imported", "refused"], imported.done.stdout
    assert notes["now"] == {
        "max_side_effects": "read",
        "read": [str(imported.folder / "notes")],
        "write": [],
        "hosts": [],
        "secrets": ["notes-api-key"],
        "variables": ["LEVEL", "SOME_VARIABLE"],
    }
    within = {tool["name"]: tool["within_grants"] for tool in notes["tools"]}
    assert within == {"keep_note": False, "list_notes": True, "tell": False}
    assert who["now"]["max_side_effects"] == "external"
    pinned = json.loads((imported.folder / "fumehood.lock").read_text())["plugins"]
    assert sorted(pinned) == ["notes", "who-am-i"]


def test_a_secret_is_in_a_file_of_its_own_and_nowhere_else(imported: Imported) -> None:
    file = imported.folder / ".fumehood" / "secrets" / "notes-api-key"
    assert (file.read_text(), file.stat().st_mode & 0o777) == (KEY, 0o600)
    held = [
        path
        for path in imported.folder.rglob("*")
        if path.is_file() and path.name != ".mcp.json" and KEY.encode() in path.read_bytes()
    ]
    assert held == [file]
    manifest = tomllib.loads((imported.folder / "mcp/notes/plugin.toml").read_text())
    assert manifest["plugin"]["environment"]["API_KEY"] == {"secret": "notes-api-key"}


def test_what_was_written_passes_the_check(imported: Imported) -> None:
    done = fumehood("plugin", "check", "mcp/notes", "--json", folder=imported.folder, more=imported.environment)
    assert (done.status, done.json["problems"]) == (0, []), done.stdout


def test_imported_again_nothing_is_fetched_or_changed(imported: Imported, registry: NpmRegistry) -> None:
    before = {path: path.read_bytes() for path in imported.folder.glob("mcp/*/*")}
    config = (imported.folder / "fumehood.toml").read_text()
    asked = len(registry.asked)
    done = imported.run(".mcp.json", "--yes", "--json", "--server", "notes", "--server", "who am I")
    assert [each["status"] for each in done.json["servers"]] == ["unchanged", "unchanged"], done.stdout
    assert (done.status, len(registry.asked)) == (0, asked)
    assert {path: path.read_bytes() for path in imported.folder.glob("mcp/*/*")} == before
    assert (imported.folder / "fumehood.toml").read_text() == config


def test_the_servers_tools_are_called_through_the_sidecar_and_held_to_their_grants(imported: Imported) -> None:
    config = imported.folder / "fumehood.toml"
    text = config.read_text()
    # What each level may is decided by grants, and not by which tools may be called.
    more = text.replace('max_side_effects = "read"', 'max_side_effects = "external"')
    more += '[[policy.rule]]\nname = "all"\npermission = "allow"\ntools = ["*"]\n'
    try:
        with running_sidecar(at=imported.folder, more=more, environment=_environment(imported)) as sidecar:

            def call(tool: str, *arguments: str) -> Done:
                return fumehood("call", tool, *arguments, address=sidecar.target)

            assert call("list_notes").stdout == "first\n"
            kept = call("keep_note", "text=x")
            assert (kept.status, "EROFS" in kept.stdout + kept.stderr) == (1, True), kept
            told = json.loads(call("tell").stdout)
            assert told == {"level": "high", "key": "[secret notes-api-key]", "home": "set"}
            assert call("who_am_i").stdout == "--flag\n"
    finally:
        config.write_text(text)
    assert [each.name for each in (imported.folder / "notes").iterdir()] == ["first"]


def _environment(imported: Imported) -> dict[str, str]:
    return {**os.environ, **imported.environment}


def test_a_changed_server_is_shown_as_a_diff_and_one_changed_by_hand_is_left_alone(imported: Imported) -> None:
    manifest = imported.folder / "mcp/notes/plugin.toml"
    before, config = manifest.read_text(), (imported.folder / "fumehood.toml").read_text()
    changed = {**imported.servers["notes"], "env": {"LEVEL": "low", "API_KEY": KEY}}
    imported.write({**imported.servers, "notes": changed})
    try:
        dry = imported.run(".mcp.json", "--dry-run", "--json", "--server", "notes")
        diff = dry.json["servers"][0]["diff"]
        assert '-LEVEL = "high"' in diff
        assert '+LEVEL = "low"' in diff
        assert manifest.read_text() == before
        done = imported.run(".mcp.json", "--yes", "--json", "--server", "notes")
        assert (done.json["servers"][0]["status"], done.status) == ("updated", 0), done.stdout
        assert 'LEVEL = "low"' in manifest.read_text()
        assert (imported.folder / "fumehood.toml").read_text() == config
        manifest.write_text(manifest.read_text() + "# mine\n")
        imported.write(imported.servers)
        done = imported.run(".mcp.json", "--yes", "--json", "--server", "notes")
        assert (done.json["servers"][0]["problem"]["code"], done.status) == ("changed_by_hand", 1)
        assert manifest.read_text().endswith("# mine\n")
    finally:
        imported.write(imported.servers)


def test_a_folder_of_somebody_elses_and_a_server_that_doesnt_start_leave_all_as_it_was(imported: Imported) -> None:
    other = imported.folder / "other" / "notes"
    other.mkdir(parents=True)
    (other / "plugin.toml").write_text("mine")
    config = (imported.folder / "fumehood.toml").read_text()
    (imported.folder / "empty.toml").write_text('[egress]\nallow_private = ["127.0.0.1"]\n')
    options = ("--yes", "--json", "--config", "empty.toml", "--into")
    done = imported.run(".mcp.json", *options, "other", "--server", "notes")
    assert (done.json["servers"][0]["problem"]["code"], done.status) == ("exists", 1)
    assert (other / "plugin.toml").read_text() == "mine"
    script = imported.folder / "broken.py"
    script.write_text("raise SystemExit('no key, no service')")
    (imported.folder / "broken.json").write_text(
        json.dumps({"mcpServers": {"broken": {"command": "python3", "args": [str(script)]}}})
    )
    done = imported.run("broken.json", *options, "third")
    problem = done.json["servers"][0]["problem"]
    assert (problem["code"], "no key, no service" in problem["message"]) == ("not_started", True), problem
    assert not (imported.folder / "third" / "broken").exists()
    assert "[[plugin]]" not in (imported.folder / "empty.toml").read_text()
    assert (imported.folder / "fumehood.toml").read_text() == config
