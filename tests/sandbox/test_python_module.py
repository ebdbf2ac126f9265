"""A module that runs in the inner stage's interpreter finds it as `python -m` would leave it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fumehood_sandbox import Level, Mount, Policy, PythonModule, launch

from .harness import BOUND_S, inside, read_to_end


def run(folder: Path, module: str, *argv: str) -> tuple[str, str, int]:
    policy = Policy(level=Level.NONE, runtime=(Mount(str(folder), "/opt/code"),), environment=(("TZ", "Asia/Tokyo"),))
    with launch(policy, PythonModule(module, argv, ("/opt/code",)), timeout_s=BOUND_S) as process:
        out, err = read_to_end(process)
        return out, err, process.wait(BOUND_S)


@pytest.mark.promise("S504")
def test_nothing_of_the_stage_is_left(tmp_path: Path) -> None:
    (tmp_path / "leftovers.py").write_text(
        """
import sys
found = {
    "names": sorted(globals()), "argv": sys.argv, "path": sys.path[:1], "name": __name__, "file": __file__,
    "main": sys.modules["__main__"].__dict__ is globals(),
    "ours": [name for name in sys.modules if "fumehood" in name],
    "heavy": [name for name in ("typing", "ctypes", "runpy", "site") if name in sys.modules],
    "spec": __spec__.name, "package": __package__,
}
import json, os, time
found["zone"], found["environment"] = time.tzname[0], dict(os.environ)
found["umask"] = oct(os.umask(0))
print(json.dumps(found))
"""
    )
    out, err, status = run(tmp_path, "leftovers", "--flag", "x")
    assert (err, status) == ("", 0)
    found = json.loads(out)
    assert set(found.pop("names")) <= {
        "__builtins__", "__cached__", "__doc__", "__file__", "__loader__", "__name__", "__package__", "__spec__",
        "sys",
    }  # fmt: skip
    assert found == {
        "argv": ["/opt/code/leftovers.py", "--flag", "x"],
        "path": ["/opt/code"],
        "name": "__main__",
        "file": "/opt/code/leftovers.py",
        "main": True,
        "ours": [],
        "heavy": [],
        "spec": "leftovers",
        "package": "",
        "zone": "JST",
        "environment": {"TZ": "Asia/Tokyo"},
        "umask": "0o22",
    }


def test_packages_and_relative_imports_work(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("value = 1\n")
    (package / "part.py").write_text("from . import value\nprint(value, __name__, __package__)\n")
    (package / "__main__.py").write_text("from .part import value\nprint(__name__, __package__)\n")
    assert run(tmp_path, "package.part")[0] == "1 __main__ package\n"
    assert run(tmp_path, "package")[0] == "1 package.part package\n__main__ package\n"


def test_errors_of_the_module_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f():\n    raise ValueError('mine')\nf()\n")
    out, err, status = run(tmp_path, "broken")
    assert (out, status) == ("", 1)
    assert "ValueError: mine" in err
    assert 'File "/opt/code/broken.py", line 2, in f' in err


@pytest.mark.promise("S102")
def test_no_bytecode_is_written(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("")
    (tmp_path / "importing.py").write_text("import other, sys\nprint(sys.dont_write_bytecode)\n")
    assert run(tmp_path, "importing")[0] == "True\n"
    assert not (tmp_path / "__pycache__").exists()


def test_the_interpreter_can_start_another(tmp_path: Path) -> None:
    found = inside(
        tmp_path,
        """
        command = [sys.executable, "-c", "import json; print(json.dumps(6 * 7))"]
        child = subprocess.run(command, capture_output=True, text=True)
        report([child.stdout, child.stderr])
        """,
    )
    assert found == ["42\n", ""]
