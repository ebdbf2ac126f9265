"""The programs of docs/clients.md, as they stand there, against the real sidecar."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.test_clients import BUILD_TIMEOUT_S, CLIENTS, DICE, go_environment, needs
from tests.sidecar import Sidecar, running_sidecar

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "clients.md").read_text()


@pytest.fixture(scope="module")
def sidecar() -> Iterator[Sidecar]:
    with running_sidecar([DICE]) as running:
        yield running


def program(language: str) -> str:
    """The one listing of a language."""
    (listing,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(listing)


def assert_rolled(command: list[str | Path], **options: object) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False, **options)  # type: ignore[call-overload] # options are cwd and env
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"rolled ([2-9]|1[0-2])\n", done.stdout)


def test_the_python_program_calls(sidecar: Sidecar, tmp_path: Path) -> None:
    (tmp_path / "call.py").write_text(program("python"))
    assert_rolled([sys.executable, tmp_path / "call.py", sidecar.target])


@needs("node")
def test_the_node_program_calls(sidecar: Sidecar, tmp_path: Path) -> None:
    (tmp_path / "call.mjs").write_text(program("js"))
    shutil.copytree(CLIENTS / "node" / "node_modules", tmp_path / "node_modules", symlinks=True)
    assert_rolled(["node", tmp_path / "call.mjs", sidecar.target, ROOT / "protos"])


@needs("go")
@pytest.mark.timeout(BUILD_TIMEOUT_S)
def test_the_go_program_calls(sidecar: Sidecar, tmp_path: Path) -> None:
    (tmp_path / "main.go").write_text(program("go"))
    assert_rolled(["go", "run", tmp_path / "main.go", sidecar.target], cwd=CLIENTS / "go", env=go_environment())


@pytest.mark.parametrize(
    ("language", "source"), [("java", "java/src/main/java/Call.java"), ("rust", "rust/src/main.rs")]
)
def test_the_compiled_programs_are_those_of_the_page(language: str, source: str) -> None:
    """`make clients` builds and runs them."""
    assert program(language) == (CLIENTS / source).read_text()
