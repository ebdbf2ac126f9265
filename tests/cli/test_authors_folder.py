"""What a plugin writes while it is checked names its author's folder, and not the copy that it ran from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import fumehood
from tests.plugins.support import executable
from tests.sidecar import write_plugin

LONG = "x" * 70
"""Has a line cut off within the copy's path: a problem quotes 160 characters of it."""


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_check_names_the_authors_folder_in_what_a_program_wrote(tmp_path: Path, options: tuple[str, ...]) -> None:
    folder = executable(tmp_path / "starts")
    lines = f'echo "in $PWD" >&2\necho "{LONG} $PWD/data" >&2\necho fumehood-other/kept >&2\nexit 3\n'
    (folder / "run").write_text(f"#!/bin/sh\n{lines}")
    done = fumehood("plugin", "check", "starts", *options, folder=tmp_path)
    said = done.json["problems"][0]["message"] if options else done.stdout
    assert done.status == 1
    assert f"in {folder}\n" in said
    assert f"{LONG} {folder}" in said
    assert "fumehood-other/kept" in said
    assert "fumehood-check-" not in done.stdout
    if not options:
        assert f"  {LONG} {folder}/data\n" in said.partition("What it wrote meanwhile:")[2]


def test_check_names_the_authors_folder_in_what_an_import_wrote(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "broken", "broken", "print(__file__)\nimport nowhere_to_be_found")
    done = fumehood("plugin", "check", "broken", folder=tmp_path)
    written = done.stdout.partition("What it wrote meanwhile:\n")[2]
    assert written.startswith(f"  {folder}/broken.py\n")
    assert f'File "{folder}/broken.py", line 2' in written
    assert "fumehood-check-" not in done.stdout


def test_a_temporary_folder_behind_a_link_is_named_as_the_authors_as_well(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "broken", "broken", "import nowhere_to_be_found")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    done = fumehood("plugin", "check", "broken", folder=tmp_path, more={"TMPDIR": str(tmp_path / "link")})
    assert f'File "{folder}/broken.py", line 1' in done.stdout.partition("What it wrote meanwhile:\n")[2]
    assert "fumehood-check-" not in done.stdout
