"""Leaves against the real kernel: made, joined, bounding, counting, killing, removed.

What a machine has of one version only is skipped for the other, and named; `make test-kernels` boots kernels with
version 2. Its files that a kernel may lack are tried on a folder of plain files.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fumehood_sandbox import LaunchError
from fumehood_sandbox.cgroup import Cgroups, Control, Leaf, cgroups
from fumehood_sandbox.cgroup.cgroup1 import Cgroup1
from fumehood_sandbox.cgroup.cgroup2 import Cgroup2
from fumehood_sandbox.cgroup.discovery import find
from fumehood_sandbox.cgroup.hierarchy import Hierarchy, hierarchies, parse
from fumehood_sandbox.cgroup.leaves import SPARE_PROCESSES, Parent
from fumehood_sandbox.cgroup.names import _started, new_name, sweep
from fumehood_sandbox.cgroup.version import CgroupVersion, members, write

from tests.resources.leaves import BOUND_S, LIMITS, MIB, line_of, of_version, running, within
from tests.sandbox.harness import room_for

MOST_CHILDREN = LIMITS.processes + SPARE_PROCESSES - 1

pytestmark = [
    pytest.mark.promise("S604"),
    pytest.mark.skipif(bool(cgroups().missing), reason="nobody gave this user a cgroup"),
]


def test_this_machine_bounds_trees_by_cgroups() -> None:
    found = find(hierarchies())
    assert found.missing == ()
    assert Control.KILL in found.controls


@pytest.mark.parametrize("bounding_leaf", [1, 2], indirect=True)
def test_kernel_kills_who_holds_more_than_the_leaf_may_and_counts_it(bounding_leaf: Leaf) -> None:
    with running(
        "held = bytearray(32 << 20); print(len(held), flush=True); sys.stdin.read()", bounding_leaf
    ) as process:
        assert line_of(process) == str(32 * MIB)
        assert bounding_leaf.oom_kills() == 0
        assert 32 * MIB <= (bounding_leaf.memory_bytes() or 0) <= (bounding_leaf.peak_memory_bytes() or 0) <= 64 * MIB
    with running("held = bytearray(96 << 20); print(len(held), flush=True)", bounding_leaf) as process:
        assert process.wait(BOUND_S) == -signal.SIGKILL
    assert bounding_leaf.oom_kills() == 1
    assert 63 * MIB <= (bounding_leaf.peak_memory_bytes() or 0) <= 64 * MIB


@pytest.mark.parametrize("bounding_leaf", [1, 2], indirect=True)
def test_kernel_counts_files_in_memory(bounding_leaf: Leaf) -> None:
    code = "fd = os.memfd_create('m')\nfor _ in range({}): os.write(fd, bytes(1 << 20))\nprint('done', flush=True)"
    with running(code.format(32), bounding_leaf) as process:
        assert line_of(process) == "done"
        assert process.wait(BOUND_S) == 0
    with running(code.format(96), bounding_leaf) as process:
        assert process.wait(BOUND_S) == -signal.SIGKILL
    assert bounding_leaf.oom_kills() == 1


FORKS = """
count = 0
try:
    while count < {}:
        if os.fork() == 0:
            signal.pause()
        count += 1
except BlockingIOError:
    pass
print(count, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("bounding_leaf", [1, 2], indirect=True)
@pytest.mark.parametrize(("forks", "children", "refused"), [(4, 4, 0), (100, MOST_CHILDREN, 1)])
def test_kernel_refuses_forks_above_the_limit_and_counts_them(
    bounding_leaf: Leaf, forks: int, children: int, refused: int
) -> None:
    with running(FORKS.format(forks), bounding_leaf) as process:
        assert int(line_of(process)) == children
        assert len(bounding_leaf.members()) == children + 1
        assert bounding_leaf.refused_forks() == refused
        assert bounding_leaf.processes() == children + 1 - SPARE_PROCESSES
        # An older kernel's version 2 keeps no peak.
        assert bounding_leaf.most_processes() in {bounding_leaf.processes(), None}


@pytest.mark.parametrize("leaf", [1, 2], indirect=True)
def test_a_whole_tree_is_counted_and_killed_also_what_left_its_session(leaf: Leaf) -> None:
    code = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(10**6): pass
        print("deep", flush=True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True: signal.pause()
    os._exit(0)
os.wait()
while True: signal.pause()
"""
    before = leaf.cpu_ns()
    with running(code, leaf) as process:
        assert line_of(process) == "deep"
        assert within(BOUND_S, lambda: len(leaf.members()) == 2), "the one between them has ended"
        tree = leaf.members()
        pidfds = [os.pidfd_open(pid) for pid in tree]
        leaf.kill()
        for pidfd in pidfds:
            assert select.select([pidfd], [], [], BOUND_S)[0], "a process is left"
            os.close(pidfd)
        assert process.wait(BOUND_S) == -signal.SIGKILL
    assert before is not None
    # A million steps of a loop take milliseconds on any machine.
    assert (leaf.cpu_ns() or 0) - before > 1_000_000


def test_what_a_dead_process_left_is_swept_and_what_lives_stays() -> None:
    parent = of_version(2).parents[0]
    dead = subprocess.run(
        [sys.executable, "-c", "from fumehood_sandbox.cgroup.names import new_name; print(new_name())"],
        capture_output=True, check=True, text=True, timeout=BOUND_S,
    ).stdout.strip()  # fmt: skip
    own, foreign = new_name(), f"fumehood-1-{dead.split('-')[2]}-{'0' * 16}"
    for name in (dead, own, foreign):
        Path(parent.folder, name).mkdir()
    try:
        sweep({parent.folder: parent.version})
        assert not Path(parent.folder, dead).exists()
        assert Path(parent.folder, own).exists()
        # Of another PID namespace: whether its process lives can't be known here.
        assert Path(parent.folder, foreign).exists()
    finally:
        for name in (own, foreign):
            Path(parent.folder, name).rmdir()


def test_name_of_a_leaf_tells_neither_its_owner_nor_how_many_there_were() -> None:
    prefix, namespace, owner, number = new_name().split("-")
    again = new_name().split("-")
    assert again[:3] == [prefix, namespace, owner], "control: it is still known whose it is"
    assert again[3] != number
    assert (len(owner), len(number)) == (16, 16)
    assert str(os.getpid()) not in (namespace, owner, number)
    read, write = os.pipe()
    forked = os.fork()
    if forked == 0:
        os.write(write, new_name().encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        assert stream.read().split("-")[2] != owner, "a fork is another process"
    os.waitpid(forked, 0)


def test_what_still_runs_in_a_dead_process_leaf_is_killed() -> None:
    script = """
import subprocess, sys
from fumehood_sandbox import Limits
from fumehood_sandbox.cgroup import cgroups
leaf = cgroups().leaf(Limits())
left = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
leaf.add_process(left.pid)
print(left.pid, *leaf._folders, flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        # Looked at while its owner lives: from then on whoever else starts on this machine sweeps it as well.
        pid, *folders = line_of(process).split()
        pidfd = os.pidfd_open(int(pid))
        assert all(members(folder) == [int(pid)] for folder in folders)
    assert process.returncode == 0
    find(hierarchies())
    assert select.select([pidfd], [], [], BOUND_S)[0], "it still runs"
    os.close(pidfd)
    assert within(BOUND_S, lambda: not any(Path(folder).exists() for folder in folders))


def test_a_leaf_that_is_still_busy_is_removed_later() -> None:
    found = of_version(2)
    leaf = found.leaf(LIMITS)
    assert leaf is not None
    (folder,) = leaf._folders
    with running("sys.stdin.read()", leaf):
        leaf.discard()
        assert Path(folder).exists()

    def is_removed() -> bool:
        found.remove_leftovers()
        return not Path(folder).exists()

    assert within(BOUND_S, is_removed), "a killed process vanishes for a while"


def test_a_leaf_that_can_no_longer_be_made_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    parents = of_version(2).parents
    missing = Parent(str(tmp_path / "gone"), Cgroup2(), frozenset({Control.TIME}), own_folder=str(tmp_path))
    gone = Cgroups((*parents, missing), ())
    # Its own, since others make leaves beside them meanwhile.
    own = f"{new_name().rpartition('-')[0]}-*"
    before = set(Path(parents[0].folder).glob(own))
    with pytest.raises(LaunchError) as caught:
        gone.leaf(LIMITS)
    assert (caught.value.step, caught.value.errno) == ("cgroup", 2)
    assert set(Path(parents[0].folder).glob(own)) == before


# Version 2's files, also those that a kernel may lack.


def fake_of_version_2(folder: Path) -> Path:
    files = {
        "cgroup.controllers": "cpu memory pids", "cgroup.subtree_control": "", "cgroup.procs": "",
        "memory.max": "max", "memory.swap.max": "max", "memory.peak": "4096", "memory.current": "1024",
        "memory.events": "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n",
        "pids.max": "max", "pids.events": "max 5\n", "pids.current": "6", "pids.peak": "9",
        "cpu.stat": "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n", "cgroup.kill": "",
    }  # fmt: skip
    for name, content in files.items():
        (folder / name).write_text(content)
    return folder


def test_version_2_writes_and_reads_its_controllers_files(tmp_path: Path) -> None:
    folder, version = str(fake_of_version_2(tmp_path)), Cgroup2()
    assert version.offered(folder) == set(Control)
    version.limit_memory(folder, 4096)
    version.limit_processes(folder, 10)
    assert (tmp_path / "memory.swap.max").read_text() == "0ax"  # plain files aren't cut when they are written
    version.enable(folder, frozenset({Control.MEMORY}))
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"
    leaf = Leaf({folder: (version, frozenset(Control))}, spare_processes=2, retry=lambda _: None)
    assert (leaf.cpu_ns(), leaf.memory_bytes(), leaf.peak_memory_bytes()) == (1_500_000, 1024, 4096)
    assert (leaf.oom_kills(), leaf.refused_forks()) == (2, 5)
    assert (leaf.processes(), leaf.most_processes(), leaf.source) == (4, 7, "cgroup2")
    leaf.close()


def test_a_kernel_without_peaks_or_swap_accounting_measures_what_it_can(tmp_path: Path) -> None:
    fake_of_version_2(tmp_path)
    for name in ("memory.peak", "pids.peak", "memory.swap.max"):
        (tmp_path / name).unlink()
    version = Cgroup2()
    version.limit_memory(str(tmp_path), 4096)
    leaf = Leaf({str(tmp_path): (version, frozenset(Control))}, spare_processes=2, retry=lambda _: None)
    assert (leaf.peak_memory_bytes(), leaf.most_processes(), leaf.memory_bytes()) == (None, None, 1024)
    leaf.close()


class Refusing:
    """A version whose folders can be had, but in which one control doesn't do what it is told."""

    def __init__(self, version: CgroupVersion, broken: str) -> None:
        self._mechanism = version
        self._broken = broken

    def __getattr__(self, name: str) -> object:
        return (lambda *_: 0) if name == self._broken else getattr(self._mechanism, name)


@pytest.mark.parametrize(("broken", "lost"), [("memory_limit", Control.MEMORY), ("processes_limit", Control.PROCESSES)])
def test_what_does_not_do_what_it_is_told_is_not_used(
    monkeypatch: pytest.MonkeyPatch, broken: str, lost: Control
) -> None:
    version = 1 if any(each.version == 1 and each.controllers & {"memory"} for each in hierarchies()) else 2
    mechanism: type[Cgroup1 | Cgroup2] = Cgroup1 if version == 1 else Cgroup2

    def refusing(*controllers: frozenset[str]) -> Refusing:
        return Refusing(mechanism(*controllers), broken)

    assert lost in of_version(version).controls
    monkeypatch.setattr(f"fumehood_sandbox.cgroup.discovery.{mechanism.__name__}", refusing)
    found = of_version(version)
    assert lost not in found.controls
    assert any("doesn't do what it was told" in problem for problem in found.problems)


def test_folders_that_are_not_ours_are_passed_over(tmp_path: Path) -> None:
    (real,) = (each for each in hierarchies() if each.version == 2)
    (usable,) = of_version(2).parents
    found = find((Hierarchy(2, frozenset(), (str(tmp_path / "missing"), *real.folders)),))
    assert [parent.folder for parent in found.parents] == [usable.folder]
    assert find(()).missing == ("memory", "processes", "time")
    assert find(()).leaf(LIMITS) is None


def test_places_are_read_from_what_the_kernel_says() -> None:
    mounts = [
        "30 20 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw",
        "31 30 0:27 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
        r"32 30 0:28 / /sys/fs/cgroup/cpu\040acct rw - cgroup cgroup rw,cpu,cpuacct",
        "33 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd",
        "34 30 0:30 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw,nsdelegate",
    ]
    own = [
        "4:memory:/docker/abc/inner",
        "3:cpu,cpuacct:/",
        "2:name=systemd:/a",
        "0::/system.slice/fumehood.service/main",
    ]
    found = {(each.version, ",".join(sorted(each.controllers))): each.folders for each in parse(mounts, own)}
    unified = "/sys/fs/cgroup/unified"
    assert found == {
        (2, ""): (
            f"{unified}/system.slice/fumehood.service/main",
            f"{unified}/system.slice/fumehood.service",
            unified,
        ),
        (1, "memory"): ("/sys/fs/cgroup/memory/inner", "/sys/fs/cgroup/memory"),
        (1, "cpu,cpuacct"): ("/sys/fs/cgroup/cpu acct",),
        (1, "name=systemd"): ("/sys/fs/cgroup/systemd/a", "/sys/fs/cgroup/systemd"),
    }
    # In a cgroup namespace, one's own cgroup may lie above its root.
    outside = parse(mounts[:2], ["4:memory:/docker/other"])
    assert outside[0].folders == ("/sys/fs/cgroup/memory",)


def test_a_folder_with_processes_of_others_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = str(fake_of_version_2(tmp_path))

    def busy(path: str, text: str) -> None:
        if path.endswith("subtree_control") and members(folder):
            raise OSError(16, "Device or resource busy")
        write(path, text)
        if "fumehood-sidecar" in path:
            (tmp_path / "cgroup.procs").write_text("")

    monkeypatch.setattr("fumehood_sandbox.cgroup.cgroup2.write", busy)
    (tmp_path / "cgroup.procs").write_text(f"1\n{os.getpid()}\n")
    with pytest.raises(OSError, match="busy"):
        Cgroup2().enable(folder, frozenset({Control.MEMORY}))
    assert not (tmp_path / "fumehood-sidecar").exists()
    # Where this process is alone it moves aside.
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (tmp_path / "fumehood-sidecar").mkdir()
    (tmp_path / "fumehood-sidecar" / "cgroup.procs").write_text("")
    Cgroup2().enable(folder, frozenset({Control.MEMORY}))
    assert (tmp_path / "fumehood-sidecar" / "cgroup.procs").read_text() == str(os.getpid())
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"


def test_cgroups_are_looked_for_before_a_bubblewrap_is_started() -> None:
    """What a bubblewrap leaves for a moment keeps version 2 from giving leaves, for as long as this process lives."""
    started = """
import sys
from fumehood_sandbox.cgroup import cgroups
programs = []
sys.addaudithook(lambda event, given: programs.append(given[0]) if event == "subprocess.Popen" else None)
from fumehood_sandbox.outside.bubblewrap import find
find()
before = len(programs)
cgroups()
assert len(programs) == before, "it was looked for afterwards"
print(*programs, sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", started], capture_output=True, text=True, check=True)
    programs = [Path(line).name for line in done.stdout.splitlines()]
    assert "bwrap" in programs[1:]
    assert programs[0] != "bwrap"


def test_owner_that_cannot_be_looked_up_is_not_taken_for_dead() -> None:
    with room_for(0), pytest.raises(OSError, match="Too many open files"):
        _started(os.getpid())
    assert _started(os.getpid()), "control: with a descriptor it is known"
