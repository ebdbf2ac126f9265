"""What Landlock, the filter and the files' own rights hold. Run by `test_cases.py`, by two users."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fumehood_sandbox import Backend, Executable, Level, Mount, PythonModule, SandboxUnavailableError, launch
from fumehood_sandbox import system_runtime as runtime_of_the_system

from tests.landlock_only.harness import granted, held, inside, policy
from tests.sandbox.harness import BOUND_S, read_line, read_to_end

pytestmark = pytest.mark.promise("S904")


def test_only_what_is_granted_can_be_opened(folder: Path) -> None:
    open_to_all = folder / "open"
    open_to_all.write_text("x")
    open_to_all.chmod(0o666)
    (folder / "everybody").mkdir()
    (folder / "everybody").chmod(0o777)
    read, write = granted(folder / "read", "file"), granted(folder / "write", "file")
    found = inside(
        folder,
        f"""
        base, read, write = {str(folder)!r}, {str(read)!r}, {str(write)!r}
        report(dict(
            granted=open(read + "/file").read(),
            written=open(write + "/new", "w").write("x"),
            denied=[error_of(action) for action in (
                lambda: open(base + "/open"),
                lambda: open(base + "/open", "a"),
                lambda: os.truncate(base + "/open", 0),
                lambda: os.listdir(base),
                lambda: os.listdir("/"),
                lambda: open(base + "/everybody/new", "w"),
                lambda: os.mkdir(base + "/everybody/new"),
                lambda: os.symlink("x", base + "/everybody/new"),
                lambda: open(read + "/new", "w"),
                lambda: open(read + "/file", "a"),
                lambda: os.unlink(read + "/file"),
                lambda: open("/tmp/fumehood-must-not-be", "w"),
                lambda: open("/dev/shm/fumehood-must-not-be", "w"),
                lambda: open("/etc/passwd"),
            )],
        ))
        """,
        policy(Level.WRITE, read=(str(read),), write=(str(write),)),
    )
    assert found["granted"] == "file"
    assert found["written"] == 1
    assert set(found["denied"]) == {"EACCES"}
    assert (write / "new").read_text() == "x"
    assert open_to_all.read_text() == "x"


def test_nothing_moves_out_of_grants(folder: Path) -> None:
    (folder / "everybody").mkdir()
    (folder / "everybody").chmod(0o777)
    (folder / "everybody" / "secret").write_text("secret")
    (folder / "everybody" / "secret").chmod(0o666)
    write = granted(folder / "write", "file", "other")
    found = inside(
        folder,
        f"""
        outside, write = {str(folder / "everybody")!r}, {str(write)!r}
        os.symlink(outside + "/secret", write + "/symbolic")
        os.mkdir(write + "/below")
        os.rename(write + "/file", write + "/below/file")
        report([error_of(action) for action in (
            lambda: os.rename(write + "/other", outside + "/moved"),
            lambda: os.link(write + "/other", outside + "/linked"),
            lambda: os.link(outside + "/secret", write + "/linked"),
            lambda: os.rename(outside + "/secret", write + "/stolen"),
            lambda: open(write + "/symbolic"),
            lambda: open(write + "/../everybody/secret"),
            lambda: open("/proc/self/root" + outside + "/secret"),
        )])
        """,
        policy(Level.WRITE, write=(str(write),)),
    )
    assert set(found) <= {"EACCES", "EXDEV"}
    assert [each.name for each in (folder / "everybody").iterdir()] == ["secret"]
    assert (write / "below" / "file").read_text() == "file"


def test_attributes_cannot_be_changed_nor_read_by_path(folder: Path) -> None:
    """Landlock covers none of these. An owner could do each of them to what is granted for reading."""
    read, write = granted(folder / "read", "file"), granted(folder / "write", "file")
    outside = granted(folder / "outside", "file") / "file"
    before = [path.stat() for path in (outside, read / "file", write / "file")]
    found = inside(
        folder,
        f"""
        answers = {{}}
        for path in {[str(outside), str(read / "file"), str(write / "file")]!r}:
            for name, action in dict(
                chmod=lambda: os.chmod(path, 0o777),
                chown=lambda: os.chown(path, -1, os.getgid()),
                lchown=lambda: os.lchown(path, -1, os.getgid()),
                utime=lambda: os.utime(path, (1, 1)),
                touch=lambda: os.utime(path),
                setxattr=lambda: os.setxattr(path, "user.x", b"x"),
                getxattr=lambda: os.getxattr(path, "user.x"),
                listxattr=lambda: os.listxattr(path),
                removexattr=lambda: os.removexattr(path, "user.x"),
                inotify=lambda: syscall_raises(libc.inotify_add_watch(notify, path.encode(), 0xfff)),
            ).items():
                answers.setdefault(name, []).append(error_of(action))
        """.replace(
            "answers = {}",
            """
        libc = ctypes.CDLL(None, use_errno=True)
        notify = libc.inotify_init1(0)
        def syscall_raises(answer):
            if answer < 0:
                raise OSError(ctypes.get_errno(), "")
        answers = {}""",
        )
        + f"""
        readable = os.open({str(read / "file")!r}, os.O_RDONLY)
        for name, action in dict(
            fchmod=lambda: os.fchmod(readable, 0o777),
            fchown=lambda: os.fchown(readable, -1, os.getgid()),
            futimens=lambda: os.utime(readable, (1, 1)),
            fsetxattr=lambda: os.setxattr(readable, "user.x", b"x"),
            fremovexattr=lambda: os.removexattr(readable, "user.x"),
        ).items():
            answers[name] = [error_of(action)]
        import fcntl
        def flags(command, fd):
            return lambda: fcntl.ioctl(fd, command, bytes(8))
        answers["ioctl"] = [error_of(flags(command, readable)) for command in (0x40086602, 0x401c5820, 0x40806685)]
        end = os.pipe()[0]
        answers["control"] = [error_of(flags(0x541b, end)), error_of(lambda: os.stat({str(read / "file")!r}))]
        report(answers)
        """,
        policy(Level.WRITE, read=(str(read),), write=(str(write),)),
    )
    assert set(found.pop("control")) == {"done"}
    assert set(found.pop("ioctl")) == {"ENOTTY"}
    for name, answers in found.items():
        assert set(answers) == {"ENOTSUP" if "xattr" in name else "EPERM"}, name
    after = [path.stat() for path in (outside, read / "file", write / "file")]
    assert [(each.st_mode, each.st_mtime, each.st_ctime) for each in after] == [
        (each.st_mode, each.st_mtime, each.st_ctime) for each in before
    ]


def test_data_cannot_be_run_and_programs_can(folder: Path) -> None:
    write = granted(folder / "write")
    script = """
    import shutil
    shutil.copyfile("/usr/bin/true", "true")
    report([
        subprocess.run(["/usr/bin/true"]).returncode,
        error_of(lambda: os.execv("./true", ["true"])),
        error_of(lambda: os.execv("/usr/local/bin/none", ["x"])),
    ])
    """
    given = policy(Level.WRITE, write=(str(write),), runtime=runtime_of_the_system(), working_directory=str(write))
    assert inside(folder, script, given)[:2] == [0, "EACCES"]


def test_scratch_is_the_programs_own_and_gone_afterwards(folder: Path) -> None:
    code = """
    os.makedirs("a/b")
    open("a/file", "w").write("x")
    fd = os.open(".", os.O_RDONLY)
    for _ in range(1100):  # deeper than any path can be long, and than Python can recurse
        os.mkdir("deep-enough-to-be-too-long", dir_fd=fd)
        below = os.open("deep-enough-to-be-too-long", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.mkdir("closed", 0)
    report([os.getcwd(), os.environ["TMPDIR"], oct(os.stat(".").st_mode), os.environ["HOME"]])
    sys.stdin.read()
    """
    given = policy(environment=(("HOME", "/tmp"),))  # noqa: S108 - a place inside
    with held(folder, code, given) as process:
        scratch, temporary, mode, home = json.loads(read_line(process.stdout))
        assert scratch == temporary == home
        assert mode == "0o40700"
        other = inside(
            folder, f"report([error_of(lambda: os.listdir({scratch!r})), os.getcwd(), os.listdir('.')])", given
        )
        assert other[0] == "EACCES"
        assert other[1] != scratch
        assert other[2] == []
        assert Path(scratch).exists()
    assert not Path(scratch).parent.exists()
    assert not Path(other[1]).parent.exists()


def test_moved_mounts_are_found_and_what_they_cover_is_not(folder: Path) -> None:
    first, second = folder / "first", folder / "second"
    for each in (first, second):
        each.mkdir()
        (each / "name").write_text(each.name)
    (second / "hidden").mkdir()
    (second / "hidden" / "name").write_text("secret")
    given = policy(
        runtime=(
            *runtime_of_the_system(),
            Mount(str(first), "/run/somewhere/first"),
            Mount(str(second), str(second)),
            Mount("", str(second / "hidden")),
        ),
        environment=(("PLACES", f"/run/somewhere/first:{second}"),),
    )
    script = 'IFS=:; for each in $PLACES; do cat $each/name; echo; done; cat "$1"/name; cat "$0" >&2'
    program = Executable(("/bin/sh", "-c", script, str(second / "hidden" / "name"), "/run/somewhere/first"))
    old_umask = os.umask(0o077)  # of the launcher, whose folders the program's user must get through
    try:
        with launch(given, program, timeout_s=BOUND_S, backend=Backend.LANDLOCK) as process:
            out, err = read_to_end(process)
    finally:
        os.umask(old_umask)
    assert out == "first\nsecond\nfirst"
    assert "Permission denied" in err


def test_what_no_link_can_show_is_refused(folder: Path) -> None:
    (folder / "a").mkdir()
    given = policy(runtime=(Mount(str(folder / "a"), "/run/x"), Mount(str(folder / "a"), "/run/x/y")))
    with pytest.raises(SandboxUnavailableError, match="lies within /run/x") as caught:
        launch(given, PythonModule("x"), backend=Backend.LANDLOCK)
    assert caught.value.feature == "mounts"


def test_scratch_beneath_a_grant_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has the grant would reach every other program's scratch, and the links to its modules."""
    grant = granted(folder / "grant")
    temporary = granted(grant / "temporary")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    given = policy(Level.READ, read=(str(grant),))
    with pytest.raises(SandboxUnavailableError, match="temporary folder") as caught:
        inside(folder, "report(1)", given)
    assert caught.value.feature == "scratch"
    assert list(temporary.iterdir()) == []
    assert inside(folder, "report(1)") == 1


def test_what_the_programs_user_may_not_use_is_refused_with_the_path(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir()
    given = policy(Level.READ, read=(str(closed),))
    assert inside(folder, f"report(os.listdir({str(closed)!r}))", given) == []
    closed.chmod(0)
    with pytest.raises(SandboxUnavailableError, match=str(closed)) as caught:
        inside(folder, "report(1)", given)
    assert caught.value.feature == "access"
