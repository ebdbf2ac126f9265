"""The table of docs/deploy/README.md, row by row: each kind of place, made here as far as a process can make one.

No engine and no service manager runs here. A place is its filter, its capabilities, its user and its mounts, in a mount
namespace of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.users import ORDINARY, SANDBOX_AND_PACKAGES, SYSTEM_PYTHON, why_not

ROOT = Path(__file__).resolve().parents[2]
_WHY_NOT = why_not(*SANDBOX_AND_PACKAGES)
_BOUND_S = 60.0
_DOCKER = (
    "-all,+chown,+dac_override,+fsetid,+fowner,+mknod,+net_raw,+setgid,+setuid,+setfcap,+setpcap,+net_bind_service,"
    "+sys_chroot,+kill,+audit_write"
)
"""What container engines leave to root by default."""
_READ_ONLY_SYS = "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys"
_PROBE = """
import json
from fumehood_sandbox import Backend, probe
print(json.dumps({backend.value: [[each.layer, each.detail, each.remedy] for each in probe(backend).missing]
    for backend in Backend}))
"""


@dataclass(frozen=True)
class _Place:
    user: str
    """"root" or "ordinary"."""
    profile: str = ""
    """For `contained.py`; empty: no filter."""
    capabilities: str = ""
    """For setpriv's --bounding-set."""
    mounts: str = ":"
    """Shell commands in a mount namespace of its own."""


PLACES = {
    "plain-root": _Place("root"),
    "plain-user": _Place("ordinary"),
    "service": _Place(
        "ordinary",
        capabilities="-all",
        mounts="mount -t tmpfs -o mode=1777 none /var/tmp && mount -t proc -o hidepid=invisible proc /proc",
    ),
    "service-no-netlink": _Place("ordinary", profile="no-netlink", capabilities="-all"),
    "service-protect-hostname": _Place("ordinary", profile="no-hostname", capabilities="-all"),
    "service-protect-tunables": _Place("ordinary", capabilities="-all", mounts=_READ_ONLY_SYS),
    "container-root": _Place("root", profile="engine", capabilities=_DOCKER, mounts=_READ_ONLY_SYS),
    "container-user": _Place("ordinary", profile="engine", capabilities="-all", mounts=_READ_ONLY_SYS),
    "container-root-no-capabilities": _Place("root", profile="engine", capabilities="-all", mounts=_READ_ONLY_SYS),
    "container-profile-masked": _Place(
        "ordinary", profile=str(ROOT / "docs/deploy/seccomp.json"), capabilities="-all", mounts=_READ_ONLY_SYS
    ),
    "container-profile-unmasked-user": _Place(
        "ordinary", profile=str(ROOT / "docs/deploy/seccomp.json"), capabilities="-all"
    ),
    "container-profile-unmasked-root": _Place(
        "root", profile=str(ROOT / "docs/deploy/seccomp.json"), capabilities=_DOCKER
    ),
}


def _table() -> dict[str, tuple[str, str]]:
    """Each tried place of the page: what it says of namespaces and of Landlock alone."""
    text = (ROOT / "docs" / "deploy" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \|[^|]*\| (yes|no)[^|]*\| (yes|no)[^|]*\|$", text, re.MULTILINE)
    return {name: (namespaces, alone) for name, namespaces, alone in rows}


def _command(place: _Place) -> list[str]:
    tools = {name: shutil.which(name) for name in ("unshare", "setpriv", "sh")}
    assert all(tools.values())
    user = ["--reuid", str(ORDINARY), "--regid", str(ORDINARY), "--clear-groups"] if place.user == "ordinary" else []
    bounding = ["--bounding-set", place.capabilities, "--inh-caps", "-all"] if place.capabilities else []
    rights = [str(tools["setpriv"]), *user, *bounding, "--"] if user or bounding else []
    contained = str(ROOT / "tests" / "landlock_only" / "contained.py")
    inside = [SYSTEM_PYTHON, "-B", contained, place.profile] if place.profile else []
    command = [*rights, *inside, SYSTEM_PYTHON, "-B", "-c", _PROBE]
    return [str(tools["unshare"]), "--mount", str(tools["sh"]), "-c", f'{place.mounts} && exec "$@"', "sh", *command]


def test_every_place_of_the_page_is_tried_and_the_other_way_round() -> None:
    assert set(_table()) == set(PLACES)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes mounts and gives up capabilities")
@pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)
@pytest.mark.parametrize("name", PLACES)
def test_each_place_gives_the_layers_that_the_page_says(name: str) -> None:
    done = subprocess.run(
        _command(PLACES[name]),
        env={
            "PYTHONPATH": ":".join(SANDBOX_AND_PACKAGES),
            "PATH": "/usr/bin:/bin",
            "HOME": "/nowhere",
            "TMPDIR": "/var/tmp",  # noqa: S108 - sized there
        },
        capture_output=True,
        check=False,
        text=True,
        timeout=_BOUND_S,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    missing = json.loads(done.stdout)
    found = tuple("no" if missing[backend] else "yes" for backend in ("namespaces", "landlock"))
    assert found == _table()[name], missing
    # Whoever lacks something is told what to do about it.
    assert all(remedy for each in missing.values() for _, _, remedy in each)
