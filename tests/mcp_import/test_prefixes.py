"""An imported server whose tools are called as another's gets a prefix that leaves their names within 64 characters."""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import fumehood
from tests.mcp_import import servers
from tests.mcp_import.own_server import IMPORT, import_servers, write_script, write_servers
from tests.sidecar import running_sidecar

LONG = "a-very-long-name-" + "x" * 47


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:  # a unix socket's path has 107 bytes
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_long_servers_prefix_is_cut_so_that_its_tools_can_be_called(folder: Path) -> None:
    (folder / "fumehood.toml").touch()
    found = import_servers(folder, {"first": {}, "short-one": {}, LONG: {}})
    assert [each["status"] for each in found] == ["imported"] * 3, found
    config = folder / "fumehood.toml"
    prefixes = [each.get("prefix", "") for each in tomllib.loads(config.read_text())["plugin"]]
    assert prefixes == ["", "short_one_", "a_very_long_name_" + "x" * (64 - 17 - len("_who_am_i")) + "_"]
    rule = '[[policy.rule]]\nname = "all"\npermission = "allow"\ntools = ["*"]\n'
    with running_sidecar(at=folder, more=config.read_text() + rule) as sidecar:
        for each in prefixes:
            done = fumehood("call", f"{each}who_am_i", address=sidecar.target)
            assert done.status == 0, done.stderr


def test_where_no_prefix_is_short_enough_it_is_refused_and_leaves_nothing(folder: Path) -> None:
    tool = "w" * 63
    write_servers(folder, {"first": {}, "second": {}})
    write_script(folder, servers.PYTHON.replace("whoAmI", tool) + "\n\nrun()\n")
    first, second = fumehood(*IMPORT, folder=folder).json["servers"]
    assert first["status"] == "imported", first
    assert (second["status"], second["problem"]["code"]) == ("refused", "name_taken"), second
    assert f"another plugin has a tool {tool}" in second["problem"]["message"]
    assert f"[plugin.tools.{tool}]" in second["problem"]["todo"]
    assert [each.name for each in (folder / "mcp").iterdir()] == ["first"]
    config = folder / "fumehood.toml"
    config.write_text(config.read_text() + f'[plugin.tools.{tool}]\nalias = "w"\n')
    (again,) = fumehood(*IMPORT, "--server", "second", folder=folder).json["servers"]
    assert again["status"] == "imported", again


def test_two_servers_whose_cut_prefixes_are_one_are_not_both_imported(folder: Path) -> None:
    found = import_servers(folder, {"first": {}, f"{LONG[:-1]}a": {}, f"{LONG[:-1]}b": {}})
    assert [each["status"] for each in found] == ["imported", "imported", "refused"], found
    assert found[2]["problem"]["code"] == "name_taken"
