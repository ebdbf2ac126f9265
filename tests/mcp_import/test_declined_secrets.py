"""A secret that is not granted is left out of the server, which is said, and is asked for again by the next import."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import fumehood, on_terminal
from tests.mcp.support import mcp_plugin
from tests.mcp_import import servers
from tests.mcp_import.npm_registry import npm_registry
from tests.sidecar import running_sidecar

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm: `make setup` gets it")
KEY = "sk-0123456789abcdefghij"
NO, YES = "", "y"


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    with npm_registry() as found:
        found.publish("@scope/notes", "1.0.0", {"index.js": servers.NODE}, bin={"notes": "index.js"})
        yield found.environment


def _write(folder: Path, key: str, **more: Any) -> None:
    entry = {"command": "npx", "args": ["-y", "@scope/notes"], "env": {"LEVEL": "low", "API_KEY": key}}
    (folder / "mcp.json").write_text(json.dumps({"servers": {"notes": entry}, **more}))


def _handed_over(folder: Path) -> tuple[Any, Any]:
    """What its manifest hands over, and what its entry grants."""
    manifest = tomllib.loads((folder / "mcp/notes/plugin.toml").read_text())
    entry = tomllib.loads((folder / "fumehood.toml").read_text())["plugin"][0]
    return manifest["plugin"]["environment"].get("API_KEY"), entry.get("secrets")


def test_it_is_left_out_and_asked_for_again(tmp_path: Path, environment: dict[str, str]) -> None:
    _write(tmp_path, KEY)
    questions = (("Import it?", "y"), ("API_KEY?", NO), ("Up to which may be called?", ""))
    status, text = on_terminal("mcp", "import", "mcp.json", folder=tmp_path, more=environment, typed=questions)
    assert (status, _handed_over(tmp_path)) == (0, (None, None)), text
    assert 'secrets = ["notes-api-key"]' in text
    assert '[secrets."notes-api-key"]' in text

    again = fumehood("mcp", "import", "mcp.json", "--yes", "--json", folder=tmp_path, more=environment)
    (outcome,) = again.json["servers"]
    assert (outcome["status"], "API_KEY is not granted" in outcome["todo"][0]) == ("unchanged", True), outcome

    config = tmp_path / "fumehood.toml"
    config.write_text(config.read_text() + '[plugin.tools.tell]\npermission = "deny"\n')
    questions = (("API_KEY?", YES),)
    status, text = on_terminal("mcp", "import", "mcp.json", folder=tmp_path, more=environment, typed=questions)
    assert (status, _handed_over(tmp_path)) == (0, ({"secret": "notes-api-key"}, ["notes-api-key"])), text
    kept = tomllib.loads(config.read_text())
    assert kept["plugin"][0]["tools"] == {"tell": {"permission": "deny"}}
    file = tmp_path / kept["secrets"]["notes-api-key"]["file"]
    assert (file.read_text(), KEY in text) == (KEY, False)
    again = fumehood("mcp", "import", "mcp.json", "--yes", "--json", folder=tmp_path, more=environment)
    assert again.json["servers"][0]["status"] == "unchanged"
    assert not again.json["servers"][0]["todo"]


def test_the_folder_of_a_password_that_is_left_for_later_is_there(tmp_path: Path, environment: dict[str, str]) -> None:
    _write(tmp_path, "${input:key}", inputs=[{"id": "key", "type": "promptString", "password": True}])
    done = fumehood("mcp", "import", "mcp.json", "--yes", "--json", folder=tmp_path, more=environment)
    folder = tmp_path / ".fumehood" / "secrets"
    assert (done.status, folder.is_dir() and folder.stat().st_mode & 0o777) == (0, 0o700), done.stdout
    assert str(folder / "notes-api-key") in done.json["servers"][0]["todo"][0]
    assert _handed_over(tmp_path) == ({"secret": "notes-api-key"}, ["notes-api-key"])


def test_a_server_without_its_secret_is_said_to_take_it_for_all_of_its_tools(tmp_path: Path) -> None:
    plugin = mcp_plugin(tmp_path / "small", environment={"KEY": '{ secret = "key" }'})
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "key").chmod(0o600)
    more = f'[secrets.key]\nfile = "{tmp_path / "key"}"\n'
    for grant in ("", 'secrets = ["key"]\n'):
        with running_sidecar([(plugin, f'max_side_effects = "external"\n{grant}')], more=more) as sidecar:
            tools = fumehood("tools", "--all", "--json", address=sidecar.target).json["tools"]
        remedies = {each["remedy"] for tool in tools for each in tool["availability"]["reasons"]}
        assert (bool(tools), remedies) == (True, set() if grant else {'secrets = ["key"] in its [[plugin]]'})
