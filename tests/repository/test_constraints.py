"""Locks name packages and versions, and nothing that binds an installation to a place."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.repository.test_layout import NEEDS, ROOT, name_of, project
from tools.check_hosts import findings

FILES = sorted((ROOT / "constraints").glob("*.txt"))
PINNED = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+")


def pinned(*names: str) -> set[str]:
    lines = [line for name in names for line in (ROOT / "constraints" / name).read_text(encoding="utf-8").splitlines()]
    return {name_of(line) for line in lines if not line.startswith("#")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_line_of_a_constraint_file_is_a_name_and_a_version(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert lines
    assert [line for line in lines if not PINNED.fullmatch(line)] == []


@pytest.mark.parametrize("folder", NEEDS)
def test_everything_that_a_distribution_needs_is_pinned(folder: str) -> None:
    needed = {name_of(each) for each in project(folder)["dependencies"]}
    assert {name for name in needed if not name.startswith("fumehood-")} <= pinned("runtime.txt")


@pytest.mark.parametrize(("group", "files"), [("dev", ("runtime.txt", "dev.txt")), ("toolchains", ("toolchains.txt",))])
def test_everything_that_development_needs_is_pinned(group: str, files: tuple[str, ...]) -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    assert {name_of(each) for each in groups[group]} <= pinned(*files)


def test_no_lock_or_build_file_names_a_registry() -> None:
    found = subprocess.run(
        [sys.executable, "tools/check_hosts.py"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize(
    "line",
    [
        "--index-url=somewhere",
        "--extra-index-url somewhere",
        "six @ file:///tmp/six.whl",
        '  "resolved": "somewhere",',
        "fetch = ftp://packages.example/six",
    ],
)
def test_a_registrys_address_is_found(tmp_path: Path, line: str) -> None:
    path = tmp_path / "constraints.txt"
    path.write_text(f"six==1.17.0\n{line}\n", encoding="utf-8")
    assert len(findings(path)) == 1


def test_a_plain_lock_is_let_through(tmp_path: Path) -> None:
    path = tmp_path / "package-lock.json"
    path.write_text('{\n  "funding": {\n    "url": "https://example.org/donate"\n  }\n}\n', encoding="utf-8")
    assert findings(path) == []
