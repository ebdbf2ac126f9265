"""How a leaf comes to its processes: used again for the next one, and joined by who starts them."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

import pytest
from fumehood_sandbox.cgroup import Leaf, cgroups
from fumehood_sandbox.cgroup.discovery import find
from fumehood_sandbox.cgroup.hierarchy import hierarchies
from fumehood_sandbox.cgroup.leaves import BOUNDING

from tests.resources.leaves import BOUND_S, LIMITS, MIB, bounding, line_of, of_version, running, within

pytestmark = [
    pytest.mark.promise("S604"),
    pytest.mark.skipif(bool(cgroups().missing), reason="nobody gave this user a cgroup"),
]

# A leaf for one process after another.


@pytest.mark.promise("S704")
@pytest.mark.parametrize("leaf", [1], indirect=True)
def test_an_empty_leaf_of_version_1_can_be_made_as_new(leaf: Leaf) -> None:
    with running("held = bytearray(8 << 20); print('up', flush=True); sys.stdin.read()", leaf) as process:
        assert line_of(process) == "up"
        assert (leaf.peak_memory_bytes() or 0) > 8 * MIB
        assert not leaf.reset(), "a process is in it"
    used_ns = leaf.cpu_ns()
    # A process that was waited for is charged until the kernel has let go of its stack and pages, after a grace period.
    assert within(BOUND_S, leaf.reset), (leaf.processes(), leaf.most_processes(), leaf.memory_bytes())
    assert (leaf.peak_memory_bytes() or 0) < MIB
    assert (leaf.cpu_ns() or 0) < (used_ns or 0) / 10
    with running("print('up', flush=True); sys.stdin.read()", leaf) as process:
        assert line_of(process) == "up"
        assert leaf.holds(process.pid)
        assert not leaf.holds(os.getpid())


@pytest.mark.promise("S704")
@pytest.mark.parametrize("leaf", [1], indirect=True)
@pytest.mark.parametrize(
    "code",
    [
        "import threading; t = threading.Thread(target=print, args=('up',)); t.start(); t.join(); sys.stdout.flush()",
        "held = bytearray(96 << 20)",
    ],
    ids=["it had a second thread", "the kernel killed in it"],
)
def test_what_no_counter_forgets_keeps_a_leaf_from_being_used_again(leaf: Leaf, code: str) -> None:
    with running(code, leaf) as process:
        process.wait(BOUND_S)
    assert not leaf.reset()


@pytest.mark.parametrize("leaf", [2], indirect=True)
def test_a_leaf_of_version_2_is_not_used_again(leaf: Leaf) -> None:
    with running("pass", leaf) as process:
        process.wait(BOUND_S)
    assert not leaf.reset()


@pytest.mark.promise("S704")
def test_a_leaf_that_was_removed_holds_nobody() -> None:
    leaf = find(hierarchies()).leaf(LIMITS)
    assert leaf is not None
    with running("sys.stdin.read()", leaf) as process:
        assert leaf.holds(process.pid), "control: while it is there"
        process.kill()
        process.wait(BOUND_S)
    assert leaf.remove()
    assert not leaf.holds(os.getpid())


def test_a_leaf_that_somebody_takes_over_is_not_removed() -> None:
    leaf = find(hierarchies()).leaf(LIMITS)
    assert leaf is not None
    kept: list[Leaf] = []
    leaf.reuse = lambda each: not kept.append(each)  # type: ignore[func-returns-value]
    folders = [Path(folder) for folder in leaf._folders]
    leaf.discard()
    assert kept == [leaf]
    assert all(folder.exists() for folder in folders)
    leaf.reuse = None
    leaf.discard()
    assert not any(folder.exists() for folder in folders)


# A thread that starts processes inside a leaf.


def test_a_process_begins_in_the_leaf_that_the_starting_thread_joined() -> None:
    found = bounding(1)
    leaf, thread = found.leaf(LIMITS), found.joining_thread
    assert leaf is not None
    assert thread is not None
    command = ["/bin/cat", "/proc/self/cgroup"]
    inside = thread.run_in(leaf, functools.partial(subprocess.check_output, command, text=True))
    outside = thread.run_in(None, functools.partial(subprocess.check_output, command, text=True))
    names = {Path(folder).name for folder in leaf._folders}
    assert all(inside.count(name) == len(leaf._folders) for name in names)
    assert outside == Path("/proc/self/cgroup").read_text()
    assert leaf.remove(), "the thread is still inside"


def test_what_fails_inside_is_told_and_the_thread_comes_home() -> None:
    found = bounding(1)
    leaf, thread = found.leaf(LIMITS), found.joining_thread
    assert leaf is not None
    assert thread is not None
    with pytest.raises(FileNotFoundError):
        thread.run_in(leaf, functools.partial(subprocess.Popen, ["/nowhere/at/all"]))
    assert leaf.remove(), "the thread is still inside"


def test_version_2_moves_processes_whole_so_no_thread_can_join() -> None:
    assert of_version(2).joining_thread is None


def test_version_1_alone_is_used_where_version_2_cannot_bound() -> None:
    bounding(1)
    found = find(hierarchies())
    assert {parent.version.name for parent in found.parents} == {"cgroup1"}
    assert found.controls >= BOUNDING
