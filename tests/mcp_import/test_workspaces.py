"""A server that is granted the whole workspace never gets at the sidecar's configuration, lock, socket or state."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Done, fumehood, on_terminal
from tests.mcp_import import servers
from tests.mcp_import.npm_registry import npm_registry
from tests.sidecar import running_sidecar

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm: `make setup` gets it")
ANYWHERE = servers.NODE.replace('path.join(folder, "note")', 'path.join(folder, given.at || "note")')


@dataclass
class Workspace:
    """A folder with a `.vscode/mcp.json`, and a user's own folder of configurations beside it."""

    folder: Path
    environment: dict[str, str]

    @property
    def own(self) -> Path:
        return Path(self.environment["XDG_CONFIG_HOME"])

    def run(self, *options: str | Path) -> Done:
        command = ("mcp", "import", ".vscode/mcp.json", "--json", *options)
        return fumehood(*command, folder=self.folder, more=self.environment)

    def names(self) -> set[str]:
        return {each.name for each in self.folder.iterdir()}


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    # Not tmp_path: the path of a unix socket may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="fh-") as name, npm_registry() as registry:
        registry.publish("@scope/notes", "1.0.0", {"index.js": ANYWHERE}, bin={"notes": "index.js"})
        Path(name).chmod(0o755)
        folder = Path(name) / "work"
        (folder / ".vscode").mkdir(parents=True)
        folder.chmod(0o777)
        entry = {"command": "npx", "args": ["-y", "@scope/notes", "${workspaceFolder}"]}
        (folder / ".vscode" / "mcp.json").write_text(json.dumps({"servers": {"notes": entry}}))
        yield Workspace(folder, {**registry.environment, "XDG_CONFIG_HOME": str(Path(name) / "own")})


def only(done: Done) -> dict[str, Any]:
    (found,) = done.json["servers"]
    assert isinstance(found, dict)
    return found


def test_a_server_that_may_write_the_workspace_reaches_nothing_of_the_sidecars(workspace: Workspace) -> None:
    dry = workspace.run("--dry-run")
    assert (only(dry)["status"], workspace.own.exists()) == ("planned", False)
    done = workspace.run("--yes")
    found = only(done)
    assert (found["status"], found["now"]["read"]) == ("imported", [str(workspace.folder)]), done.stdout
    config = Path(done.json["config"])
    assert (str(config), config.is_relative_to(workspace.own)) == (dry.json["config"], True)
    assert config.parent.stat().st_mode & 0o077 == 0
    assert workspace.names() == {".vscode"}
    text = config.read_text().replace('max_side_effects = "read"\nread', 'max_side_effects = "write"\nwrite')
    more = "[[plugin]]" + text.partition("[[plugin]]")[2]
    more += '[[policy.rule]]\nname = "all"\npermission = "allow"\ntools = ["*"]\n'
    environment = {**os.environ, **workspace.environment}
    with running_sidecar(at=config.parent, more=more, environment=environment) as sidecar:
        served = {path: path.read_bytes() for path in (config, config.parent / "fumehood.lock")}
        kept = fumehood("call", "keep_note", "text=x", address=sidecar.target)
        assert (kept.stdout, (workspace.folder / "note").read_text()) == ("kept\n", "x"), kept
        for path in (*served, config.parent / ".fumehood" / "new"):
            at = os.path.relpath(path, workspace.folder)
            attack = fumehood("call", "keep_note", "text=x", f"at={at}", address=sidecar.target)
            assert (attack.status, attack.stdout) == (1, ""), attack
        assert {path: path.read_bytes() for path in served} == served
        assert not (config.parent / ".fumehood" / "new").exists()


def test_a_later_import_finds_the_same_configuration_from_any_folder_of_the_workspace(workspace: Workspace) -> None:
    first = workspace.run("--dry-run").json["config"]
    Path(first).parent.mkdir(parents=True)
    Path(first).touch()
    entry = {"command": "npx", "args": ["-y", "@scope/notes"]}
    (workspace.folder / ".vscode" / "mcp.json").write_text(json.dumps({"servers": {"notes": entry}}))
    assert workspace.run("--dry-run").json["config"] == first
    Path(first).unlink()
    assert workspace.run("--dry-run").json["config"] == str(workspace.folder / "fumehood.toml")


@pytest.mark.parametrize("option", ["--dry-run", "--yes"])
def test_a_configuration_that_is_named_within_what_is_granted_is_refused_before_anything_is_done(
    workspace: Workspace, option: str
) -> None:
    done = workspace.run(option, "--config", "new/fumehood.toml", "--into", workspace.own / "mcp")
    problem = only(done)["problem"]
    assert (done.status, problem["code"], "--config" in problem["todo"]) == (1, "overlap", True), problem
    assert not (workspace.own / "mcp").exists()
    done = workspace.run(option, "--config", workspace.own / "fumehood.toml", "--into", "mcp")
    assert only(done)["problem"]["code"] == "overlap"
    assert not (workspace.folder / "mcp").exists()
    done = workspace.run("--dry-run", "--config", workspace.own / "fumehood.toml")
    assert only(done)["status"] == "planned"


def test_the_configuration_that_is_named_is_made_and_the_entry_works_from_anywhere(workspace: Workspace) -> None:
    config = workspace.own / "new" / "mine.toml"
    command = ("mcp", "import", ".vscode/mcp.json", "--yes", "--config", config)
    done = fumehood(*command, folder=workspace.folder, more=workspace.environment)
    assert (done.status, "[[plugin]]" in config.read_text()) == (0, True), done
    entry = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("  {")))
    assert Path(entry["command"]).is_absolute()
    assert os.access(entry["command"], os.X_OK)
    assert entry["args"][-3:] == ["mcp", "--address", f"unix:{config.parent}/.fumehood/fumehood.sock"]
    assert f"fumehood serve --config {config}" in done.stdout


def test_progress_is_told_on_a_terminal_beside_json_and_nowhere_else(workspace: Workspace) -> None:
    command = ("mcp", "import", ".vscode/mcp.json", "--yes", "--json")
    status, text = on_terminal(*command, folder=workspace.folder, more=workspace.environment)
    assert (status, "notes (1 of 1): resolving @scope/notes with npm" in text) == (0, True), text
    assert (workspace.run("--yes", "--upgrade").stderr, "resolving" in text) == ("", True)
