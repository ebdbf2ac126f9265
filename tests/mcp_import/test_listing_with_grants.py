"""`--list-with-grants`: a server that tries its key before it lists its tools is granted it before it is asked."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from tests.cli.command import fumehood
from tests.mcp_import import servers
from tests.mcp_import.own_server import IMPORT, import_servers, values, write_script, write_servers

KEY = "Aa0" * 12
"""Looks like a secret."""
NEEDY = f"""
import os
import sys

if os.environ.get("API_KEY") != "{KEY}":
    sys.exit("not my key")
{servers.PYTHON}

run()
"""
LISTED = ("--list-with-grants", "needy")


def import_needy(folder: Path, *more: str, key: str = KEY) -> dict[str, Any]:
    write_servers(folder, {"needy": {"API_KEY": key}})
    write_script(folder, NEEDY)
    (found,) = fumehood(*IMPORT, *more, folder=folder).json["servers"]
    assert isinstance(found, dict)
    return found


def test_a_server_that_tries_its_key_is_imported_with_its_grants_and_is_told_how_without(tmp_path: Path) -> None:
    found = import_needy(tmp_path)
    assert found["problem"]["code"] == "not_started"
    assert "`--list-with-grants needy` asks it with that" in found["problem"]["todo"]
    assert not (tmp_path / "fumehood.toml").exists()
    found = import_needy(tmp_path, *LISTED)
    assert found["status"] == "imported", found
    (entry,) = tomllib.loads((tmp_path / "fumehood.toml").read_text())["plugin"]
    assert (entry["list_with_grants"], entry["max_side_effects"]) == (True, "external"), "its tool says nothing"
    assert found["now"]["list_with_grants"] is True
    assert values(tmp_path, "needy") == {"API_KEY": KEY}
    assert fumehood("plugin", "check", "mcp/needy", "--with-grants", folder=tmp_path).status == 0
    assert import_needy(tmp_path, *LISTED)["status"] == "unchanged"


def test_a_server_that_does_not_take_its_key_leaves_nothing(tmp_path: Path) -> None:
    found = import_needy(tmp_path, *LISTED, key=KEY[::-1])
    assert "not my key" in found["problem"]["message"]
    assert "It was asked for its tools with what it is granted." in found["problem"]["todo"]
    assert not (tmp_path / "fumehood.toml").exists()
    assert not (tmp_path / "mcp" / "needy").exists()
    assert not list((tmp_path / ".fumehood" / "secrets").glob("*"))


def test_the_option_is_refused_where_it_would_do_nothing(tmp_path: Path) -> None:
    import_servers(tmp_path, {"needy": {}})
    found = import_needy(tmp_path, *LISTED)
    assert "names needy already" in found["problem"]["message"]
    assert "Write `list_with_grants = true` into its [[plugin]]." in found["problem"]["todo"]
    (tmp_path / "mcp.json").write_text(
        json.dumps({"servers": {"web": {"type": "http", "url": "https://x.example/mcp"}}})
    )
    (found,) = fumehood(*IMPORT, "--list-with-grants", "web", folder=tmp_path).json["servers"]
    assert "--list-with-grants is for servers on stdio" in found["problem"]["message"]
    done = fumehood(*IMPORT, "--list-with-grants", "webb", folder=tmp_path)
    assert (done.status, "names no server webb" in done.stderr) == (2, True), done.stderr
    write_servers(tmp_path, {"needy": {}, "other": {}})
    done = fumehood(*IMPORT, "--server", "other", *LISTED, folder=tmp_path)
    assert (done.status, "Give --server needy as well." in done.stderr) == (2, True), done.stderr
