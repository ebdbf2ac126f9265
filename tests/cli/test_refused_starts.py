"""Starts that are refused by what the options say, or by what they have come to in a file that nobody wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fumehood_sandbox import Level
from fumehood_server.cli.dev_sidecar import DevGrants, DevSidecar
from fumehood_server.cli.failure import CommandError
from fumehood_server.config.listen import MAX_ADDRESSES

from tests.cli.command import fumehood


@pytest.mark.parametrize(
    ("addresses", "what"),
    [
        (["unix:a", "unix:./a"], 'error: --listen: "unix:./a" is named twice'),
        ([f"unix:{number}" for number in range(MAX_ADDRESSES + 1)], "error: --listen: 17 addresses are too many"),
    ],
)
def test_addresses_that_the_file_could_not_have_are_refused_as_options_too(
    tmp_path: Path, addresses: list[str], what: str
) -> None:
    (tmp_path / "fumehood.toml").write_text("")
    done = fumehood("serve", *(word for each in addresses for word in ("--listen", each)), folder=tmp_path)
    assert (done.status, done.stderr.splitlines()[0]) == (2, what)


def start_of_child(folder: Path, hosts: Sequence[str] = ()) -> list[Mapping[str, Any]]:
    """What a sidecar of one plugin logs that doesn't come to serve."""
    shown: list[Mapping[str, Any]] = []
    (folder / "plugin").mkdir()
    grants = DevGrants(max_side_effects=Level.EXTERNAL, hosts=hosts)
    sidecar = DevSidecar(folder, folder / "plugin", grants, shown.append, environments=folder / "packages")
    with pytest.raises(CommandError), sidecar:
        pass
    return shown


def test_child_sidecar_says_in_a_line_what_its_configuration_is_refused_for(tmp_path: Path) -> None:
    (line,) = start_of_child(tmp_path, ["no host"])
    assert (line["event"], line["level"], "no host" in line["message"]) == ("config_refused", "error", True), line


def test_child_sidecar_says_in_a_line_what_it_can_not_listen_on(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    line = start_of_child(tmp_path)[-1]
    assert (line["event"], line["level"]) == ("start_failed", "error"), line
    assert f"can't listen on unix:{tmp_path}/s" in line["message"], line
