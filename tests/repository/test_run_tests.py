"""`make test` runs what failed once more, alone, and no more of it than a few tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository.test_layout import ROOT
from tools.run_tests import MOST_AGAIN

# Plugins that aren't needed take most of a start.
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
TESTS = """
import pathlib
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_fails_at_first(number):
    seen = pathlib.Path(f"seen{{number}}")
    if not seen.exists():
        seen.touch()
        pytest.fail("for the first time")

def test_fails_always():
    assert not {always}

def test_passes():
    with pathlib.Path("passed").open("a") as file:
        file.write("x")
"""


def run(folder: Path, count: int, *, always: bool) -> subprocess.CompletedProcess[str]:
    (folder / "test_some.py").write_text(TESTS.format(count=count, always=always))
    return subprocess.run(
        [sys.executable, "-m", "tools.run_tests", "-q", "-p", "xdist.plugin", "-n", "2", "test_some.py"],
        cwd=folder,
        env=ENVIRONMENT,
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("count", [0, MOST_AGAIN])
def test_what_passes_alone_passes_and_is_named(tmp_path: Path, count: int) -> None:
    ended = run(tmp_path, count, always=False)
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.count("passed only when it ran alone") == count
    assert (tmp_path / "passed").read_text() == "x", "what passed runs once"


@pytest.mark.parametrize(("count", "always"), [(MOST_AGAIN - 1, True), (MOST_AGAIN + 1, False)])
def test_what_fails_twice_or_is_too_much_fails(tmp_path: Path, count: int, always: bool) -> None:
    ended = run(tmp_path, count, always=always)
    assert ended.returncode == 1, ended.stdout
    assert "passed only when it ran alone" not in ended.stdout


def test_what_isnt_a_failure_has_pytests_own_status(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text("")
    ended = subprocess.run(
        [sys.executable, "-m", "tools.run_tests", "-q", "test_some.py"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
