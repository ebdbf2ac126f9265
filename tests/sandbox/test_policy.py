"""Policies that contradict themselves, or ask for what no sandbox gives, are refused before anything starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fumehood_sandbox import (
    Executable,
    Level,
    Limits,
    Mount,
    Policy,
    PolicyError,
    start,
    system_runtime,
)

PROGRAM = Executable(("/bin/true",))


def refused(policy: Policy) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        start(policy, PROGRAM).abort()
    return caught.value


@pytest.mark.promise("S110", "S903")
@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (Policy(level=Level.NONE, read=("/usr/share",)), "read"),
        (Policy(level=Level.READ, write=("/usr/share",)), "write"),
        (Policy(level=Level.READ, read=("relative",)), "read"),
        (Policy(level=Level.WRITE, write=("relative",)), "write"),
        (Policy(level=Level.READ, read=("/missing/file",)), "read"),
        (Policy(level=Level.READ, read=("/",)), "read"),
        (Policy(level=Level.READ, read=("/usr/..",)), "read"),
        (Policy(level=Level.READ, read=("/proc/self",)), "read"),
        (Policy(level=Level.READ, read=("/sys",)), "read"),
        (Policy(level=Level.WRITE, write=("/dev/shm",)), "write"),  # noqa: S108 - refused
        (Policy(level=Level.READ, read=("/usr/share\0",)), "read"),
        (Policy(level=Level.WRITE, write=("/etc/passwd",)), "write"),
        (Policy(level=Level.NONE, runtime=(Mount("relative", "/x"),)), "runtime source"),
        (Policy(level=Level.NONE, runtime=(Mount("/usr", "x"),)), "runtime target"),
        (Policy(level=Level.NONE, runtime=(Mount("/usr", "/x/../y"),)), "runtime target"),
        (Policy(level=Level.NONE, runtime=(Mount("/", "/x"),)), "runtime"),
        (Policy(level=Level.NONE, runtime=(Mount("/usr", "/"),)), "runtime"),
        (Policy(level=Level.NONE, runtime=(Mount("/usr", "/proc/x"),)), "runtime"),
        (Policy(level=Level.NONE, runtime=(Mount("/usr", "/tmp"),)), "runtime"),  # noqa: S108 - refused
        (Policy(level=Level.NONE, runtime=(Mount("/missing", "/x"),)), "runtime"),
        (Policy(level=Level.NONE, environment=(("A=B", "x"),)), "environment"),
        (Policy(level=Level.NONE, environment=(("A", "\0"),)), "environment"),
        (Policy(level=Level.NONE, working_directory="relative"), "working_directory"),
        (Policy(level=Level.NONE, limits=Limits(processes=0)), "limits.processes"),
        (Policy(level=Level.NONE, limits=Limits(memory_bytes=-1)), "limits.memory_bytes"),
        (Policy(level=Level.NONE, limits=Limits(scratch_bytes=1)), "limits.scratch_bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_bad_policy_is_refused(policy: Policy, field: str) -> None:
    assert refused(policy).field == field


@pytest.mark.promise("S108")
def test_nothing_may_be_mounted_beneath_a_writable_folder(tmp_path: Path) -> None:
    below = tmp_path / "write" / "below"
    below.mkdir(parents=True)
    write = str(tmp_path / "write")
    assert refused(Policy(level=Level.WRITE, write=(write,), read=(str(below),))).field == "write"
    assert refused(Policy(level=Level.WRITE, write=(write, str(below)))).field == "write"
    assert refused(Policy(level=Level.WRITE, write=(write,), runtime=(Mount("/usr", str(below)),))).field == "write"
    assert refused(Policy(level=Level.WRITE, write=("/tmp",))).field == "write"  # noqa: S108 - refused
    start(Policy(level=Level.WRITE, write=(write,), read=(write,), runtime=system_runtime()), PROGRAM).abort()


@pytest.mark.promise("S108")
def test_link_to_what_cannot_be_granted_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc")
    assert refused(Policy(level=Level.READ, read=(str(tmp_path / "link"),))).field == "read"


@pytest.mark.promise("S903")
def test_sockets_and_pipes_cannot_be_granted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refused(Policy(level=Level.READ, read=(str(tmp_path / "pipe"),))).field == "read"


@pytest.mark.promise("S903")
def test_program_without_a_name_is_refused() -> None:
    with pytest.raises(PolicyError):
        start(Policy(level=Level.NONE), Executable(()))
    with pytest.raises(PolicyError):
        start(Policy(level=Level.NONE), Executable(("/bin/true", "\0")))
