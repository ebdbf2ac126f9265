"""What a plugin leaves behind for the next start, which is made with the launcher's rights (CVE-2026-87766)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from fumehood_sandbox import Level, Mount, Policy, PolicyError, SandboxError
from fumehood_sandbox.outside import bubblewrap

from tests.sandbox.harness import BOUND_S, inside

pytestmark = pytest.mark.promise("S108")

_PLANT = """
    import shutil
    os.chdir({write!r})
    planted = []
    for name in ("run", "tmp", "proc", "dev", "usr", "oldroot", "newroot", "etc", "sub", "deep/er"):
        if os.path.isdir(name) and not os.path.islink(name):
            shutil.rmtree(name)
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        os.symlink("/oldroot" + {victim!r}, name)
        planted.append(os.readlink(name))
    report([len(planted), error_of(lambda: open("made", "w")), error_of(lambda: os.listdir("sub"))])
"""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    for name in ("grants/write/sub", "grants/read", "victim"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "victim" / "file").write_text("untouched")
    return tmp_path


def test_same_link_is_followed_where_the_order_is_another(house: Path) -> None:
    """That the tests below try something real: bubblewrap itself, with a mount point beneath a writable folder."""
    write, victim = house / "grants" / "write", house / "victim"
    (write / "link").symlink_to(f"/oldroot{victim}")
    everything = ("--ro-bind", "/", "/", "--proc", "/proc", "--tmpfs", "/mnt", "--bind", str(write), "/mnt/write")
    command = [bubblewrap.find(), "--unshare-user", "--unshare-pid", *everything]
    command += ["--ro-bind", "/usr", "/mnt/write/link/planted", "--", "/bin/true"]
    subprocess.run(command, check=False, capture_output=True, timeout=BOUND_S)
    if [path.name for path in victim.iterdir()] == ["file"]:
        pytest.skip("this bubblewrap doesn't follow links to the old root (CVE-2026-87766 is mended)")
    assert {path.name for path in victim.iterdir()} == {"file", "planted"}


def test_links_to_the_old_root_are_never_followed_by_the_next_start(house: Path) -> None:
    write, victim = house / "grants" / "write", house / "victim"
    policies = (
        Policy(level=Level.WRITE, write=(str(write),)),
        # The same with everything around it mounted as well, and made anew at each start.
        Policy(level=Level.WRITE, read=(str(house / "grants"),), write=(str(write),)),
        Policy(level=Level.WRITE, read=(str(house / "grants" / "read"),), write=(str(write),)),
    )
    code = _PLANT.format(write=str(write), victim=str(victim))
    assert inside(house, code, policies[0]) == [10, "done", "ENOENT"]
    links = {path.name for path in write.iterdir() if path.is_symlink()}
    for policy in policies:
        found = inside(house, f"report([error_of(lambda: os.listdir('{write}/sub')), os.getcwd()])", policy)
        assert found == ["ENOENT", "/tmp"]  # noqa: S108 - inside
    assert {path.name for path in write.iterdir() if path.is_symlink()} == links
    assert [path.name for path in victim.iterdir()] == ["file"]
    assert (victim / "file").read_text() == "untouched"


@pytest.mark.parametrize("name", ["sub", "sub/new", "deep/er/new", "run"])
def test_what_would_be_mounted_beneath_such_a_link_is_refused(house: Path, name: str) -> None:
    write, victim = house / "grants" / "write", house / "victim"
    inside(house, _PLANT.format(write=str(write), victim=str(victim)), Policy(level=Level.WRITE, write=(str(write),)))
    for policy in (
        Policy(level=Level.WRITE, write=(str(write),), runtime=(Mount("/usr", f"{write}/{name}"),)),
        Policy(level=Level.WRITE, write=(str(write),), read=(f"{write}/{name}",)),
        Policy(level=Level.READ, read=(f"{write}/{name}",)),
        Policy(level=Level.WRITE, write=(f"{write}/{name}",)),
    ):
        with pytest.raises((PolicyError, SandboxError)):
            inside(house, "report(1)", policy)
    assert [path.name for path in victim.iterdir()] == ["file"]
    # The folder itself is still one that can be granted.
    assert inside(house, "report(1)", Policy(level=Level.WRITE, write=(str(write),))) == 1


def test_grant_that_was_replaced_by_a_link_is_refused(house: Path) -> None:
    """By somebody who may write to the folder around it: another plugin, the operator's own scripts."""
    write = house / "grants" / "write"
    os.rename(write, house / "grants" / "aside")  # noqa: PTH104 - as the attacker would
    write.symlink_to(house / "victim")
    with pytest.raises(PolicyError, match="symbolic link"):
        inside(house, "report(1)", Policy(level=Level.WRITE, write=(str(write),)))
    write.unlink()
    os.rename(house / "grants" / "aside", write)  # noqa: PTH104 - back again
    assert inside(house, "report(1)", Policy(level=Level.WRITE, write=(str(write),))) == 1
