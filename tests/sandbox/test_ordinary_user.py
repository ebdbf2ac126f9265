"""The kernel's facts once more, with an ordinary user as the launcher: other mounts, another identity, no mappings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import fumehood_sandbox
import pytest

_NOBODY = 65534
_SYSTEM_PYTHON = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
_HERE = Path(__file__).resolve().parent
_MODULES = (
    "test_layers.py",
    "test_process.py",
    "test_seccomp.py",
    "test_file_system.py",
    "test_python_module.py",
    "test_forking.py",
)
_ATTACKS = ("test_denials.py", "test_neighbours.py", "test_next_start.py")
_BOUND_S = 100.0
_NO_TESTS_FAILED = 0


def _everybody_reads(path: Path) -> bool:
    return all(each.stat().st_mode & 0o5 == 0o5 for each in (path, *path.parents))


@pytest.mark.promise("S902")
@pytest.mark.skipif(os.geteuid() != 0, reason="this whole suite runs as an ordinary user already")
@pytest.mark.skipif(not Path(_SYSTEM_PYTHON).exists(), reason="no interpreter of this version that every user can run")
@pytest.mark.skipif(
    not all(map(_everybody_reads, (_HERE, Path(sysconfig.get_path("purelib"))))), reason="the checkout is root's alone"
)
def test_every_layer_holds_for_an_ordinary_user_too() -> None:
    setpriv = shutil.which("setpriv")
    assert setpriv is not None
    sources = (str(Path(fumehood_sandbox.__file__).parent.parent), sysconfig.get_path("purelib"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o777)
        done = subprocess.run(
            [
                *(setpriv, f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"),
                *(_SYSTEM_PYTHON, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"),
                f"--basetemp={folder}/pytest",
                *(str(_HERE / module) for module in _MODULES),
                *(str(_HERE.parent / "attacks" / module) for module in _ATTACKS),
            ],
            env={"PYTHONPATH": ":".join(sources), "PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder},
            capture_output=True,
            check=False,
            text=True,
            timeout=_BOUND_S,
            cwd=_HERE.parent.parent,
        )
    assert done.returncode == _NO_TESTS_FAILED, done.stdout[-4000:] + done.stderr[-2000:]
