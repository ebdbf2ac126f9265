"""Another user than root, and an interpreter that every user can run: bubblewrap's launcher need not be root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import fumehood_sandbox

SYSTEM_PYTHON = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
SANDBOX_AND_PACKAGES = (str(Path(fumehood_sandbox.__file__).parent.parent), sysconfig.get_path("purelib"))
"""For PYTHONPATH: what the system's interpreter needs to run tests of the sandbox."""
_ROOT = Path(__file__).resolve().parents[1]
_TESTS_TIMEOUT_S = 100.0
_NOBODY = 65534
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
ORDINARY = _NOBODY - int(_WORKER.removeprefix("gw"))
"""A user of this process of pytest's own: limits of a user's processes count those of all who run tests as him."""


def as_ordinary_user() -> tuple[str, ...]:
    """What makes a command an ordinary user's, put before it. Only root can."""
    setpriv = shutil.which("setpriv")
    assert setpriv is not None
    return (setpriv, f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups")


def why_not(*needed: str | Path) -> str:
    """Why the system's interpreter can't run what lies there as every user; empty: it can."""
    if not Path(SYSTEM_PYTHON).exists():
        return "no interpreter of this version that every user can run"
    folders = [folder for each in needed for folder in (Path(each), *Path(each).parents)]
    return "" if all(each.stat().st_mode & 0o5 == 0o5 for each in folders) else "the checkout is root's alone"


def assert_passes(*tests: Path, changed: tuple[str, ...] = (), options: tuple[str, ...] = ()) -> None:
    """Run files of tests by the system's interpreter, behind a command that changes the user. They leave nothing."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o777)
        places = {"PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder}
        done = subprocess.run(
            [
                *(*changed, SYSTEM_PYTHON, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
                *("-p", "no:hypothesispytest", f"--basetemp={folder}/pytest", *options, *map(str, tests)),
            ],
            env={"PYTHONPATH": ":".join(SANDBOX_AND_PACKAGES), **places},
            capture_output=True,
            check=False,
            text=True,
            timeout=_TESTS_TIMEOUT_S,
            cwd=_ROOT,
        )
        left = [path.name for path in Path(folder).glob("fumehood-*")]
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert left == []
