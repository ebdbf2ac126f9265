"""A file or folder that a server is to make is asked about by the folder around it, or it is said what to do."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest
from fumehood_server.cli.mcp_import.known_servers import lacking_settings
from fumehood_server.cli.mcp_import.launchers import Launch, ServerCommand
from fumehood_server.cli.mcp_import.places import find_places

from tests.cli.command import fumehood, on_terminal
from tests.mcp_import import servers
from tests.mcp_import.npm_registry import npm_registry


def test_it_is_a_place_where_its_folder_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    home = tmp_path / "home"
    home.mkdir()
    named = {
        "A": tmp_path / "there/graph.json",
        "B": tmp_path / "new/deep/graph.json",
        "C": tmp_path / "folder",
        "D": Path("/no-such-folder/graph.json"),
        "E": home / "graph.json",
        "F": Path("/etc/graph.json"),
    }
    found = find_places(((name, str(path)) for name, path in named.items()), home)
    assert [(each.where, each.folder, each.is_there) for each in found.paths] == [
        ("A", tmp_path / "there", False),
        ("B", tmp_path / "new/deep", False),
        ("C", tmp_path / "folder", False),
    ]
    assert len(found.refused) == 3
    assert "a folder of its own" in found.refused[1].text


def test_the_memory_server_is_said_to_need_its_variable() -> None:
    command = ServerCommand(launch=Launch.NPM, requirement="@modelcontextprotocol/server-memory@latest")
    assert "MEMORY_FILE_PATH" in lacking_settings(command, {})[0].todo
    assert lacking_settings(command, {"MEMORY_FILE_PATH": "/srv/memory/graph.json"}) == ()
    assert lacking_settings(ServerCommand(launch=Launch.NPM, requirement="pkg"), {}) == ()


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm: `make setup` gets it")
def test_its_folder_is_made_and_granted_where_somebody_says_so(tmp_path: Path) -> None:
    memory = tmp_path / "memory" / "graph.json"
    entry = {"command": "npx", "args": ["-y", "@scope/notes"], "env": {"FILE": str(memory)}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": entry}}))
    config = tmp_path / "fumehood.toml"
    with npm_registry() as registry:
        registry.publish("@scope/notes", "1.0.0", {"index.js": servers.NODE}, bin={"notes": "index.js"})
        environment = registry.environment
        done = fumehood("mcp", "import", "mcp.json", "--yes", "--json", folder=tmp_path, more=environment)
        (outcome,) = done.json["servers"]
        assert (outcome["status"], outcome["now"]["write"], memory.parent.exists()) == ("imported", [], False)
        assert f"mkdir -p {memory.parent}" in outcome["todo"][0]
        assert f'write = ["{memory.parent}"]' in outcome["todo"][0]
        config.unlink()
        questions = (("Import it?", "y"), ("memory around graph.json", "write"), ("Up to which may be", "write"))
        status, text = on_terminal("mcp", "import", "mcp.json", folder=tmp_path, more=environment, typed=questions)
    assert (status, memory.parent.is_dir()) == (0, True), text
    assert tomllib.loads(config.read_text())["plugin"][0]["write"] == ["memory"]
