"""Starts that are refused by what the options say, or by what they have come to in a file that nobody wrote."""

from __future__ import annotations

from pathlib import Path

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


def test_child_sidecar_says_in_a_line_what_its_configuration_is_refused_for(tmp_path: Path) -> None:
    shown: list[object] = []
    (tmp_path / "plugin").mkdir()
    grants = DevGrants(max_side_effects=Level.EXTERNAL, hosts=["no host"])
    sidecar = DevSidecar(tmp_path, tmp_path / "plugin", grants, shown.append, environments=tmp_path / "packages")
    with pytest.raises(CommandError), sidecar:
        pass
    (line,) = shown
    assert isinstance(line, dict)
    assert (line["event"], line["level"], "no host" in line["message"]) == ("config_refused", "error", True), line
