from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

_SOURCE = 'NAME = "good"\n'
_FORGED = 'NAME = "evil"\n'  # of the same size, which bytecode records beside the time


def _plant(folder: Path) -> None:
    """Leave bytecode of another source that claims to be the module's."""
    source = folder / "planted.py"
    source.write_text(_FORGED)
    os.utime(source, (1_000_000_000, 1_000_000_000))
    py_compile.compile(str(source), doraise=True)
    source.write_text(_SOURCE)
    os.utime(source, (1_000_000_000, 1_000_000_000))


@pytest.mark.parametrize(
    ("setup", "said"),
    [
        pytest.param("", "evil", id="control: plain Python runs what was planted"),
        pytest.param("from fumehood_sdk.sources import trust_sources_alone as t; t(folder); ", "good", id="sources"),
    ],
)
@pytest.mark.parametrize("package", ["", "package"])
def test_planted_bytecode_does_not_run_in_place_of_a_plugins_source(
    tmp_path: Path, setup: str, said: str, package: str
) -> None:
    folder = tmp_path / package
    folder.mkdir(exist_ok=True)
    _plant(folder)
    name = f"{package}.planted" if package else "planted"
    code = (
        f"import sys; folder = {str(tmp_path)!r}; {setup}sys.path.insert(0, folder); import {name} as p; print(p.NAME)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == said


def test_bytecode_in_the_plugins_own_environment_is_used_since_the_digest_covers_it(tmp_path: Path) -> None:
    site = tmp_path / ".venv" / "lib" / "site-packages"
    site.mkdir(parents=True)
    _plant(site)
    code = (
        f"import sys; from fumehood_sdk.sources import trust_sources_alone as t; t({str(tmp_path)!r}); "
        f"sys.path.insert(0, {str(site)!r}); import planted; print(planted.NAME)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "evil"
