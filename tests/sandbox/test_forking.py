"""Children of a zygote, by the library alone: the order of the answers, and each child's own leaf."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fumehood_sandbox import (
    ForkedProcess,
    ForkServer,
    LaunchError,
    Leaf,
    Level,
    Limits,
    Mount,
    Policy,
    PythonModule,
    SandboxedProcess,
    cgroups,
)

from tests.resources.leaves import within
from tests.sandbox.harness import BOUND_S, CODE, open_here, room_for

_CAN_JOIN = pytest.mark.skipif(cgroups().joining_thread is None, reason="no leaf can be joined here")

_PRELUDE = """
import os, sys
zygote = sys.modules["fumehood_zygote"]
true, close = zygote._run_child, os.close

def child(control, request, fds, run, main):
    lie(int(request), fds)
    true(control, request, fds, run, main)

def lie(number, fds):
    pass

def run():
    os.write(1, b"here")
    while os.read(0, 1):
        pass
"""
_EPILOGUE = """
zygote._run_child = child
os.write(1, b"r")
zygote.serve(0, run)
"""


_KEEPS_TASKS_FDS = """
tasks_fds = []
def keep(fd):
    try:
        name = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        name = ""
    if name.endswith("/tasks") and len(tasks_fds) < HIERARCHIES:
        tasks_fds.append(fd)
        THEN
    else:
        close(fd)
def keep_some(low, high):
    if high < 100:
        for fd in range(low, high):
            keep(fd)
    else:  # a child's, of all that it has
        closerange(low, high)
closerange = os.closerange
os.close, os.closerange = keep, keep_some
"""


def keeps_tasks_fds(then: str) -> str:
    """What a zygote does that closes no tasks descriptor of its first child's."""
    return _KEEPS_TASKS_FDS.replace("HIERARCHIES", str(hierarchies())).replace("THEN", then)


def hierarchies() -> int:
    made = leaf()
    count = len(made._folders)
    made.discard()
    return count


@dataclass
class Approved:
    """A zygote that was approved, and its fork server."""

    server: ForkServer
    zygote: SandboxedProcess

    def answer(self) -> ForkedProcess | None:
        awaited(self.server.fileno())
        return self.server.receive_answer()

    def child(self) -> ForkedProcess:
        child = self.answer()
        assert child is not None
        return child


def awaited(fd: int) -> None:
    assert select.select([fd], [], [], BOUND_S)[0]


@contextlib.contextmanager
def approved_zygote(folder: Path, code: str = "") -> Iterator[Approved]:
    (folder / "forked.py").write_text(_PRELUDE + code + _EPILOGUE)
    policy = Policy(level=Level.NONE, runtime=(Mount(str(folder), CODE),), identity="forked")
    server, zygote = ForkServer(policy, PythonModule("forked", path=(CODE,), forks=6)), None
    try:
        deadline = time.monotonic() + BOUND_S
        while zygote is None:
            assert time.monotonic() < deadline
            awaited(server.launching.fileno())
            zygote = server.launching.advance()
        server.start_supervisor(zygote)
        awaited(zygote.stdout)
        assert os.read(zygote.stdout, 1) == b"r"
        made = Approved(server, zygote)
        server.request_approval()
        assert made.answer() is None
        yield made
    finally:
        server.launching.abort()
        server.close()
        if zygote is not None:
            zygote.close()


def leaf() -> Leaf:
    made = cgroups().leaf(Limits(), killed_otherwise=True)
    assert made is not None
    return made


def members(folder: Path) -> list[str]:
    return (folder / "cgroup.procs").read_text(encoding="ascii").split()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _are_removed(folders: list[Path]) -> bool:
    """Whether leaves are gone that may have been vanishing when they were given up."""
    cgroups().remove_leftovers()
    return not any(folder.exists() for folder in folders)


def said(child: ForkedProcess) -> bytes:
    awaited(child.stdout)
    return os.read(child.stdout, 100)


@_CAN_JOIN
@pytest.mark.promise("S703")
def test_requests_at_once_are_answered_in_order_each_in_its_own_leaf(tmp_path: Path) -> None:
    with approved_zygote(tmp_path) as made:
        leaves = [leaf() for _ in range(6)]
        for each in leaves:
            made.server.request_child(each)
        children = [made.child() for _ in leaves]
        for child, own in zip(children, leaves, strict=True):
            assert child.leaf is own
            assert [each for each in leaves if each.holds(child.pid)] == [own]
            assert said(child) == b"here"
            child.close()


@_CAN_JOIN
@pytest.mark.promise("S703")
def test_failed_fork_is_answered_in_its_turn_and_the_others_get_their_own_leaves(tmp_path: Path) -> None:
    with approved_zygote(
        tmp_path, "def lie(number, fds):\n    if number == 1: zygote._drop_privileges = lambda: None\n"
    ) as made:
        leaves = [leaf() for _ in range(4)]
        for each in leaves:
            made.server.request_child(each)
        with pytest.raises(LaunchError, match="capabilities"):
            made.answer()
        for own in leaves[1:]:
            child = made.child()
            assert child.leaf is own
            assert own.holds(child.pid)
            assert said(child) == b"here"
            child.close()


@_CAN_JOIN
@pytest.mark.promise("S703")
def test_request_with_a_leaf_that_is_gone_is_refused_and_the_next_has_its_own(tmp_path: Path) -> None:
    with approved_zygote(tmp_path) as made:
        gone, own = leaf(), leaf()
        gone.remove()
        gone._folders = {"/sys/fs/cgroup/fumehood-that-is-gone": next(iter(own._folders.values()))}
        with pytest.raises(LaunchError) as caught:
            made.server.request_child(gone)
        assert caught.value.step == "cgroup"
        made.server.request_child(own)
        child = made.child()
        assert child.leaf is own
        assert said(child) == b"here"
        child.close()


@_CAN_JOIN
@pytest.mark.promise("S704")
def test_child_in_the_leaf_of_another_is_ended_and_that_leaf_is_not_used_again(tmp_path: Path) -> None:
    enters = "def lie(number, fds):\n    if number == 2: fds[3:] = tasks_fds\n"
    with approved_zygote(tmp_path, keeps_tasks_fds(then="pass") + enters) as made:
        first, second = leaf(), leaf()
        taken_over: list[Leaf] = []
        for each in (first, second):
            each.reuse = lambda subject: not taken_over.append(subject)  # type: ignore[func-returns-value]
            made.server.request_child(each)
        child = made.child()
        assert said(child) == b"here", "control: a child that joins its own is handed over"
        with pytest.raises(LaunchError, match="not in the leaf"):
            made.answer()
        assert taken_over == []
        child.close()
        assert taken_over == [first]
        first.reuse = None
        first.discard()


@_CAN_JOIN
@pytest.mark.promise("S704")
def test_zygote_that_joins_a_calls_leaf_keeps_it_from_the_next_and_gets_out_of_none(tmp_path: Path) -> None:
    with approved_zygote(tmp_path, keeps_tasks_fds(then='os.write(fd, b"0")')) as made:
        first, second = leaf(), leaf()
        taken_over: list[bool] = []

        def take_over(subject: Leaf) -> bool:
            # The kernel tells of a child's end a moment before it counts it no more.
            taken_over.append(subject.reset() if subject is first else within(BOUND_S, subject.reset))
            return False

        folders = [Path(folder) for folder in first._folders]
        for each in (first, second):
            each.reuse = take_over
            made.server.request_child(each)
            child = made.child()
            assert said(child) == b"here"
            assert each.holds(child.pid)
            if each is first:
                # It steps in behind the fork. What is removed meanwhile it can't join, and it ends of that error.
                _until(lambda: all(len(members(folder)) == 2 for folder in folders))
            child.close()
        assert taken_over == [False, True], "control: into the second one nobody steps"
        assert all(members(folder) for folder in folders)
    _until(lambda: _are_removed(folders))


@_CAN_JOIN
@pytest.mark.promise("S704")
def test_leaf_of_a_fork_that_failed_is_not_used_again(tmp_path: Path) -> None:
    with approved_zygote(
        tmp_path, "def lie(number, fds):\n    if number == 1: os._exit(0)\n    zygote._drop_privileges = lambda: None\n"
    ) as made:
        own = leaf()
        taken_over: list[Leaf] = []
        own.reuse = lambda subject: not taken_over.append(subject)  # type: ignore[func-returns-value]
        folders = [Path(folder) for folder in own._folders]
        made.server.request_child(own)
        with pytest.raises(LaunchError, match="no child after"):
            made.answer()
        assert taken_over == []
        _until(lambda: _are_removed(folders))


@pytest.mark.promise("S703")
def test_child_for_whose_descriptors_there_is_no_room_leaves_none_and_ends(tmp_path: Path) -> None:
    with approved_zygote(tmp_path) as made:
        made.server.request_child()
        awaited(made.server.fileno())
        gc.collect()  # what tests before have left open closes now
        before = open_here()
        with room_for(2), pytest.raises(LaunchError):
            made.server.receive_answer()
        assert open_here() == before
        made.server.request_child()
        child = made.child()
        assert said(child) == b"here", "control: with room there is a child"
        child.close()


_TELLS_LATE_IMPORTS = """
there = set(sys.modules)
def run():
    os.write(1, repr(set(sys.modules) - there).encode())
    while os.read(0, 1):
        pass
"""


def test_nothing_is_imported_while_a_zygote_is_looked_at(tmp_path: Path) -> None:
    """An import opens files, and one that is open just then would be taken for the plugin's."""
    with approved_zygote(tmp_path, _TELLS_LATE_IMPORTS) as made:
        made.server.request_child()
        child = made.child()
        assert said(child) == b"set()"
        child.close()


_FILLS_ITS_STDIN = """
import signal
def child(control, request, fds, run, main):
    if request != b"1":
        true(control, request, fds, run, main)
    try:
        full = os.open(f"/proc/self/fd/{fds[0]}", os.O_WRONLY | os.O_NONBLOCK)
        while True:
            os.write(full, bytes(4096))
    except PermissionError:
        os._exit(1)
    except BlockingIOError:
        control.send(b"s" + request)
        signal.pause()
"""


@pytest.mark.promise("S703")
def test_child_that_fills_its_own_stdin_holds_nobody_up(tmp_path: Path) -> None:
    """It can, where it is the same user that made the pipe. The fork supervisor writes to it."""
    with approved_zygote(tmp_path, _FILLS_ITS_STDIN) as made:
        for _ in range(2):
            made.server.request_child()
        # Root's pipe is not the child's to open.
        with pytest.raises(LaunchError, match="no child after" if os.geteuid() == 0 else "BlockingIOError"):
            made.answer()
        child = made.child()
        assert said(child) == b"here"
        child.close()


@pytest.mark.promise("S703")
def test_zygote_that_is_killed_with_requests_unread_is_told_as_gone(tmp_path: Path) -> None:
    with approved_zygote(tmp_path) as made:
        made.server.request_child()
        made.child().close()
        (zygote,) = made.zygote.pids()
        os.kill(zygote, signal.SIGSTOP)
        for _ in range(2):
            made.server.request_child()
        time.sleep(0.1)  # the requests reach the zygote's socket
        os.kill(zygote, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(LaunchError, match=r"the zygote is gone|Broken pipe"):
                made.answer()


def test_supervisor_that_was_killed_is_told_by_its_signal(tmp_path: Path) -> None:
    with approved_zygote(tmp_path) as made:
        made.server.request_child()
        made.child().close()
        supervisor = made.server._supervisor
        assert supervisor is not None
        supervisor.send_signal(signal.SIGKILL)
        with pytest.raises(LaunchError, match="attendant: it was killed by signal 9"):
            made.answer()
