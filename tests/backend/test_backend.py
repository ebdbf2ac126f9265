"""The backend without namespaces, held to its promises by root and by an ordinary user.

Nothing can be mounted there, so the program's user needs rights to the interpreter: the cases are run by the system's.
"""

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
_BOUND_S = 100.0


def _everybody_reads(path: Path) -> bool:
    return all(each.stat().st_mode & 0o5 == 0o5 for each in (path, *path.parents))


@pytest.mark.skipif(not Path(_SYSTEM_PYTHON).exists(), reason="no interpreter of this version that every user can run")
@pytest.mark.skipif(
    not all(map(_everybody_reads, (_HERE, Path(sysconfig.get_path("purelib"))))), reason="the checkout is root's alone"
)
@pytest.mark.parametrize("cases", sorted(path.name for path in _HERE.glob("cases_*.py")))
@pytest.mark.parametrize("user", ["root", "ordinary"])
def test_every_promise_holds_without_namespaces(cases: str, user: str) -> None:
    changed: tuple[str, ...] = ()
    if os.geteuid() == 0 and user == "ordinary":
        setpriv = shutil.which("setpriv")
        assert setpriv is not None
        changed = (setpriv, f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups")
    elif os.geteuid() != 0 and user == "root":
        pytest.skip("this whole suite runs as an ordinary user")
    sources = (str(Path(fumehood_sandbox.__file__).parent.parent), sysconfig.get_path("purelib"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o777)
        done = subprocess.run(
            [
                *(*changed, _SYSTEM_PYTHON, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
                *("-p", "no:hypothesispytest", f"--basetemp={folder}/pytest", str(_HERE / cases)),
            ],
            env={"PYTHONPATH": ":".join(sources), "PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder},
            capture_output=True,
            check=False,
            text=True,
            timeout=_BOUND_S,
            cwd=_HERE.parent.parent,
        )
        left = [path.name for path in Path(folder).glob("fumehood-*")]
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert left == []
