"""A person at a terminal is asked for each grant by itself, and Enter takes the narrower answer."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import on_terminal
from tests.mcp_import import servers
from tests.mcp_import.npm_registry import npm_registry

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm: `make setup` gets it")
KEY = "sk-0123456789abcdefghij"
ENTER = ""


@pytest.fixture
def registry_environment() -> Iterator[dict[str, str]]:
    with npm_registry() as found:
        found.publish("@scope/notes", "1.0.0", {"index.js": servers.NODE}, bin={"notes": "index.js"})
        yield found.environment


def _imported(
    folder: Path, environment: dict[str, str], answers: Sequence[tuple[str, str]]
) -> tuple[int, str, dict[str, Any]]:
    """How it ended, what it wrote, and its entry in fumehood.toml."""
    for name in ("notes", "archive"):
        (folder / name).mkdir()
    entry = {
        "command": "npx",
        "args": ["-y", "@scope/notes", str(folder / "notes"), str(folder / "archive")],
        "env": {"API_KEY": KEY},
    }
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"notes": entry}}))
    status, text = on_terminal("mcp", "import", ".mcp.json", folder=folder, more=environment, typed=answers)
    config = folder / "fumehood.toml"
    written = tomllib.loads(config.read_text()) if config.exists() else {}
    return status, text, next(iter(written.get("plugin", [])), {})


def test_what_a_person_agrees_to_is_granted_and_nothing_else(
    tmp_path: Path, registry_environment: dict[str, str]
) -> None:
    answers = (
        ("Import it?", "y"),
        ("/notes, ", "write"),
        ("/archive, ", "no"),
        ("API_KEY?", "y"),
        ("Up to which may be called?", "write"),
    )
    status, text, entry = _imported(tmp_path, registry_environment, answers)
    assert status == 0, text
    granted = {key: entry.get(key, []) for key in ("max_side_effects", "read", "write", "secrets")}
    assert granted == {
        "max_side_effects": "write",
        "read": [],
        "write": ["notes"],
        "secrets": ["notes-api-key"],
    }
    assert KEY not in text


def test_enter_grants_no_secret_and_no_more_than_reading(tmp_path: Path, registry_environment: dict[str, str]) -> None:
    answers = (
        ("Import it?", "y"),
        ("/notes, ", ENTER),
        ("/archive, ", ENTER),
        ("API_KEY?", ENTER),
        ("Up to which may be called?", ENTER),
    )
    status, text, entry = _imported(tmp_path, registry_environment, answers)
    assert status == 0, text
    assert (entry.get("max_side_effects", "read"), entry.get("write", []), entry.get("secrets", [])) == ("read", [], [])
    assert not (tmp_path / ".fumehood" / "secrets" / "notes-api-key").exists()


def test_who_does_not_agree_has_nothing_imported(tmp_path: Path, registry_environment: dict[str, str]) -> None:
    _, text, entry = _imported(tmp_path, registry_environment, (("Import it?", ENTER),))
    assert not entry, text
    assert not (tmp_path / "mcp").exists()
    assert not (tmp_path / "fumehood.lock").exists()
