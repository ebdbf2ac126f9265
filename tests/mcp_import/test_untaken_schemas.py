"""A tool whose schema isn't taken counts for nothing in an import: the others decide on its level and hints."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import fumehood
from tests.mcp.test_schemas import CODE, LEFT, UNTAKEN
from tests.mcp_import.own_server import write_script

IMPORT = ("mcp", "import", "mcp.json", "--yes")
ODD = {"name": "odd", "annotations": {"readOnlyHint": True}, **UNTAKEN["elsewhere"]}
READING = {"name": "reading", "annotations": {"readOnlyHint": True, "openWorldHint": False}}
SILENT = {"name": "silent"}


def write_server(folder: Path, *tools: dict[str, Any]) -> None:
    script = write_script(folder, CODE % [*tools])
    entry = {"command": "python3", "args": [str(script)]}
    (folder / "mcp.json").write_text(json.dumps({"servers": {"mixed": entry}}))


@pytest.mark.parametrize(("usable", "level"), [(SILENT, "external"), (READING, "read")])
def test_level_is_that_of_the_tools_that_can_be_called(tmp_path: Path, usable: dict[str, Any], level: str) -> None:
    write_server(tmp_path, ODD, usable)
    (outcome,) = fumehood(*IMPORT, "--json", folder=tmp_path).json["servers"]
    assert outcome["status"] == "imported", outcome
    assert tomllib.loads((tmp_path / "fumehood.toml").read_text())["plugin"][0]["max_side_effects"] == level
    tools = {tool["name"]: tool for tool in outcome["tools"]}
    assert (tools["odd"]["within_grants"], "`input_schema`" in tools["odd"]["unavailable"]) == (False, True)
    good = tools[usable["name"]]
    assert (good["within_grants"], good["unavailable"]) == (True, None)
    (note,) = [each for each in outcome["notes"] if "odd" in each]
    assert note == f"odd is unavailable: {tools['odd']['unavailable']}"
    assert not [each for each in (*outcome["notes"], *outcome["todo"]) if "max_side_effects" in each]


def test_what_can_not_be_called_or_is_not_checked_is_told(tmp_path: Path) -> None:
    write_server(tmp_path, ODD, READING, READING | {"name": "e_mail"} | LEFT["e_mail"])
    said = fumehood(*IMPORT, folder=tmp_path).stdout
    assert "tools:  2 read; 1 tool unavailable: odd" in said
    assert "note: odd is unavailable: `input_schema`" in said
    assert "note: e_mail: the server alone checks patterns" in said
    assert "above what is granted" not in said
