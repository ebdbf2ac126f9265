"""How the file system inside is built, and that building it can't be turned against the host."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from fumehood_sandbox import (
    Executable,
    LaunchError,
    Level,
    Mount,
    Policy,
    PolicyError,
    launch,
    python_runtime,
    system_runtime,
)
from fumehood_sandbox.outside.bubblewrap_start import plan_start, start_bubblewrap

from .harness import BOUND_S, inside, read_to_end, readable


@pytest.mark.promise("S101")
def test_python_runtime_is_enough_for_the_standard_library_and_brings_no_packages(tmp_path: Path) -> None:
    found = inside(
        tmp_path,
        """
        import asyncio, decimal, hashlib, lzma, sqlite3, ssl, zlib, zoneinfo
        packages = [path for path in sys.path if path.endswith("-packages")]
        import sysconfig
        hidden = os.path.join(os.path.dirname(os.__file__), "site-packages")
        report({"path": packages, "hidden": os.listdir(hidden) if os.path.isdir(hidden) else []})
        """,
    )
    assert found == {"path": [], "hidden": []}
    assert any(os.path.realpath(sys.executable).startswith(mount.target) for mount in python_runtime())


@pytest.mark.promise("S101")
def test_system_runtime_runs_the_systems_programs_and_shows_no_secrets() -> None:
    policy = Policy(level=Level.NONE, runtime=system_runtime(), environment=(("PATH", "/usr/bin:/bin"),))
    script = "grep -c . /etc/passwd; ls /etc; cat /etc/hostname /etc/shadow /etc/hosts; ls /root /home"
    with launch(policy, Executable(("sh", "-c", script)), timeout_s=BOUND_S) as process:
        out, err = read_to_end(process)
    count, *names = out.split()
    assert count == "2"
    assert not {"shadow", "hostname", "hosts", "machine-id", "resolv.conf"} & set(names)
    assert err.count("No such file") >= 4


@pytest.mark.promise("S108")
def test_link_left_by_a_plugin_does_not_make_setup_write_on_the_host(tmp_path: Path) -> None:
    """CVE-2026-87766: bubblewrap's setup sees the host at /oldroot and makes missing mount points through links."""
    write, victim = tmp_path / "write", tmp_path / "victim"
    write.mkdir()
    victim.mkdir()
    # At the two places where a mount point might be wanted beneath the folder, and as the folder's own neighbours.
    for name in ("run", "data"):
        (write / name).symlink_to(f"/oldroot{victim}")
    policy = Policy(level=Level.WRITE, write=(str(write),))
    found = inside(
        tmp_path,
        f"report([error_of(lambda: open('{write}/ok', 'w')), error_of(lambda: os.listdir('{write}/run'))])",
        policy,
    )
    assert found == ["done", "ENOENT"]
    assert list(victim.iterdir()) == []
    for bad in (
        Policy(level=Level.WRITE, write=(str(write),), runtime=(Mount("/usr", f"{write}/run/new"),)),
        Policy(level=Level.WRITE, write=(str(write),), read=(f"{write}/data",)),
    ):
        with pytest.raises(Exception, match=r"policy\.|oldroot"):
            inside(tmp_path, "report(1)", bad)
    assert list(victim.iterdir()) == []


@pytest.mark.promise("S108")
def test_grant_swapped_for_a_link_while_it_starts_is_never_followed(tmp_path: Path) -> None:
    granted, other = tmp_path / "granted", tmp_path / "other"
    for folder in (granted, other):
        folder.mkdir()
        (folder / folder.name).touch()
    policy = Policy(level=Level.READ, read=(str(granted),), runtime=system_runtime())
    with ExitStack() as stack:
        plan = plan_start(policy, Executable(("/bin/ls", str(granted))), stack)
        granted.rename(tmp_path / "moved")
        granted.symlink_to(other)
        launching = start_bubblewrap(plan, stack)
    while (process := launching.advance()) is None:
        readable(launching.fileno())
    with process:
        # The folder that was checked is what is shown, though it has another name outside by now.
        assert read_to_end(process)[0].split() == ["granted"]


@pytest.mark.promise("S108")
def test_grant_that_has_become_a_link_is_refused_and_the_folder_itself_is_shown(tmp_path: Path) -> None:
    """A program that may write to the folder around a grant of another's could put a link in its place."""
    granted, secret = tmp_path / "shared" / "granted", tmp_path / "secret"
    for folder in (granted, secret):
        folder.mkdir(parents=True)
        (folder / "file").write_text(folder.name)
    policy = Policy(level=Level.READ, read=(str(granted),))
    assert inside(tmp_path, f"report(open('{granted}/file').read())", policy) == "granted"
    granted.rename(tmp_path / "moved")
    granted.symlink_to(secret)
    for path in (granted, granted / "file"):
        with pytest.raises(PolicyError, match="symbolic link"):
            inside(tmp_path, "report(None)", Policy(level=Level.READ, read=(str(path),)))


@pytest.mark.promise("S101")
def test_single_files_can_be_granted_for_reading(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    found = inside(
        tmp_path,
        f"report([open('{tmp_path}/one').read(), error_of(lambda: open('{tmp_path}/two'))])",
        Policy(level=Level.READ, read=(str(tmp_path / "one"),)),
    )
    assert found == ["1", "ENOENT"]


@pytest.mark.promise("S101")
def test_empty_mount_hides_what_lies_beneath(tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    (shown / "hidden").mkdir(parents=True)
    (shown / "hidden" / "file").write_text("text")
    (shown / "file").write_text("text")
    policy = Policy(level=Level.NONE, runtime=(Mount(str(shown), "/opt/x"), Mount("", "/opt/x/hidden")))
    found = inside(
        tmp_path,
        """
        report([sorted(os.listdir("/opt/x")), os.listdir("/opt/x/hidden"),
                error_of(lambda: open("/opt/x/hidden/new", "w"))])
        """,
        policy,
    )
    assert found[:2] == [["file", "hidden"], []]
    assert found[2] in {"EROFS", "EACCES"}


def test_empty_folders_lie_in_empty_folders(tmp_path: Path) -> None:
    policy = Policy(level=Level.NONE, runtime=(Mount("", "/w"), Mount("", "/w/a/real"), Mount("", "/w/b")))
    found = inside(
        tmp_path,
        """
        report([sorted(os.listdir("/w")), os.listdir("/w/a"), os.listdir("/w/a/real"), os.listdir("/w/b"),
                error_of(lambda: open("/w/new", "w")), error_of(lambda: open("/w/a/real/new", "w"))])
        """,
        policy,
    )
    assert found[:4] == [["a", "b"], ["real"], [], []]
    assert {*found[4:]} <= {"EROFS", "EACCES"}


@pytest.mark.promise("S109")
def test_scratch_is_private_and_gone_with_the_sandbox(tmp_path: Path) -> None:
    code = "report([os.listdir('/tmp'), os.listdir('/dev/shm'), open('/tmp/x', 'w').write('x')])"
    assert inside(tmp_path, code) == [[], [], 1]
    assert inside(tmp_path, code) == [[], [], 1]


@pytest.mark.promise("S507")
@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's grants are the program's own already")
def test_folder_of_root_can_be_written_by_a_program_that_is_not_root(tmp_path: Path) -> None:
    write = tmp_path / "write"
    (write / "sub").mkdir(parents=True)
    (write / "sub" / "old").write_text("old")
    write.chmod(0o700)
    found = inside(
        tmp_path,
        f"""
        os.chdir("{write}")
        open("new", "w").write("new")
        os.unlink("sub/old")
        report([os.getuid(), os.stat("new").st_uid, os.stat(".").st_uid])
        """,
        Policy(level=Level.WRITE, write=(str(write),), identity="writer"),
    )
    assert found[0] == found[1] == found[2] != 0
    assert ((write / "new").stat().st_uid, (write / "new").read_text()) == (0, "new")
    assert not (write / "sub" / "old").exists()
    # What the sidecar's own mounts look like has not changed.
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text(encoding="utf-8")


@pytest.mark.promise("S507")
@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's files are the program's own already")
def test_code_that_roots_umask_closed_to_others_can_be_run(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "file").write_text("text")
    (closed / "file").chmod(0o600)
    policy = Policy(level=Level.READ, runtime=(Mount(str(closed), "/opt/code"),), read=(str(closed),))
    found = inside(
        tmp_path,
        f"""
        def attempt(path):
            return [open(path).read(), error_of(lambda: open(path, "w"))]
        report([attempt("/opt/code/file"), attempt("{closed}/file")])
        """,
        policy,
    )
    assert [text for text, _ in found] == ["text", "text"]
    assert {error for _, error in found} <= {"EROFS", "EACCES"}


@pytest.mark.promise("S507")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_folder_given_to_the_programs_user_is_written_as_it_is(tmp_path: Path) -> None:
    user = inside(tmp_path, "report(os.getuid())", Policy(level=Level.NONE, identity="owner"))
    write = tmp_path / "write"
    write.mkdir(mode=0o700)
    shutil.chown(write, user, user)
    policy = Policy(level=Level.WRITE, write=(str(write),), identity="owner")
    assert inside(tmp_path, f"report(error_of(lambda: open('{write}/new', 'w')))", policy) == "done"
    assert (write / "new").stat().st_uid == user


def test_mount_point_that_cannot_be_made_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    runtime = (*system_runtime(), Mount(str(tmp_path / "file"), "/usr/missing/file"))
    with pytest.raises(LaunchError) as caught:
        launch(Policy(level=Level.NONE, runtime=runtime), Executable(("/bin/true",)), timeout_s=BOUND_S)
    assert caught.value.step == "namespaces"
    assert "/usr/missing" in str(caught.value)
    assert not Path("/usr/missing").exists()
