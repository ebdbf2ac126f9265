"""Distributions, each with a pyproject of its own, that need one another in one direction."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

NEEDS = {
    "evidence": set(),
    "protos": set(),
    "plugin_sdk": {"fumehood-protos"},
    "sandbox": set(),
    "server": {"fumehood-evidence", "fumehood-protos", "fumehood-sandbox", "fumehood-sdk"},
    "distribution": {"fumehood-server"},
}
"""Folder, and the distributions of this repository that it requires."""


def project(folder: str) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def name_of(requirement: str) -> str:
    end = next((place for place, char in enumerate(requirement) if not (char.isalnum() or char in "-_.")), None)
    return requirement[:end].lower().replace("_", "-")


@pytest.mark.parametrize("folder", NEEDS)
def test_a_distribution_needs_only_those_below_it(folder: str) -> None:
    needed = {name_of(each) for each in project(folder)["dependencies"]}
    assert {name for name in needed if name.startswith("fumehood")} == NEEDS[folder]


def test_the_sandbox_needs_the_standard_library_alone() -> None:
    assert project("sandbox")["dependencies"] == []


@pytest.mark.parametrize("folder", NEEDS)
def test_a_distribution_tells_its_licence_and_its_types(folder: str) -> None:
    assert project(folder)["license"] == "Apache-2.0"
    assert project(folder)["requires-python"] == ">=3.11"
    if folder == "distribution":  # it has no code
        return
    (package,) = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"][
        "build"
    ]["targets"]["wheel"]["packages"]
    assert (ROOT / folder / package / "py.typed").is_file()


def test_all_distributions_have_one_version() -> None:
    assert len({project(folder)["version"] for folder in NEEDS}) == 1


@pytest.mark.parametrize("name", ["LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_the_repository_has_what_a_stranger_looks_for(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8").strip()


def test_what_is_kept_is_text() -> None:
    # A recording or a build that slipped in would stay in the history of everybody's clone.
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    listed = subprocess.run(command, capture_output=True, check=True, timeout=30).stdout.split(b"\0")
    kept = [ROOT / name.decode() for name in listed if name]
    assert ROOT / "README.md" in kept
    assert [path for path in kept if path.is_file() and b"\0" in path.read_bytes()] == []


def test_contributors_find_every_part_of_the_server_on_the_map_and_none_that_is_gone() -> None:
    drawn = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\nserver/fumehood_server/ ")[2]
    names = re.findall(r"(?<=\s)(\w+(?:/|\.py))(?=\s)", drawn.partition("\n\n")[0])
    package = ROOT / "server/fumehood_server"
    modules = {path.name for path in package.glob("*.py") if not path.name.startswith("__")}
    folders = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    assert set(names) == modules | folders
