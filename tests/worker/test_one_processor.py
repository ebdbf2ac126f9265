"""Threads that share a processor now and then: real threads, and the processes that are started meanwhile."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import fumehood_sandbox
import psutil
import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_sandbox import PythonModule
from fumehood_server import one_processor
from fumehood_server.model.tool import Isolation
from fumehood_server.worker import LogSink, Pools, zygote

from tests.isolation.bench import BOUND_S, SETTINGS, Bench, attendants
from tests.sandbox.harness import room_for
from tests.sidecar import Sidecar, running_sidecar, write_plugin

EVERYWHERE = os.sched_getaffinity(0)

pytestmark = pytest.mark.skipif(len(EVERYWHERE) == 1, reason="there is one processor")

_ECHO = '''
from fumehood_sdk import Plugin

plugin = Plugin("echo", version="1.0.0")


@plugin.tool(side_effects="none")
def echo(text: str) -> str:
    """Says it again."""
    return text
'''


@contextmanager
def _thread() -> Iterator[int]:
    """A thread that waits; its number."""
    go_on, numbers = threading.Event(), list[int]()

    def wait() -> None:
        numbers.append(threading.get_native_id())
        go_on.wait(BOUND_S)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        while not numbers:
            pass
        yield numbers[0]
    finally:
        go_on.set()
        thread.join()


@pytest.fixture
def shared() -> Iterator[int]:
    """A thread that shares the processor with this one."""
    with _thread() as thread:
        one_processor.share((thread,))
        try:
            yield thread
        finally:
            one_processor.share(())
            assert os.sched_getaffinity(0) == EVERYWHERE


def test_threads_are_on_one_processor_and_then_anywhere(shared: int) -> None:
    with _thread() as other:
        assert not one_processor.is_shared()
        one_processor.gather()
        one_processor.gather()
        here = os.sched_getaffinity(0)
        assert one_processor.is_shared()
        assert (len(here), here < EVERYWHERE, os.sched_getaffinity(shared)) == (1, True, here)
        assert os.sched_getaffinity(other) == EVERYWHERE, "who does not share it is left alone"
        one_processor.part()
        one_processor.part()
        assert not one_processor.is_shared()
        assert [os.sched_getaffinity(each) for each in (0, shared, other)] == [EVERYWHERE] * 3


def test_thread_that_was_started_meanwhile_is_let_go_as_well(shared: int) -> None:
    one_processor.gather()
    with _thread() as other:
        assert os.sched_getaffinity(other) == os.sched_getaffinity(shared), "control: Linux hands it on"
        one_processor.part()
        assert os.sched_getaffinity(other) == EVERYWHERE


def test_thread_that_somebody_moved_stays_there(shared: int) -> None:
    one_processor.gather()
    elsewhere = {min(EVERYWHERE - os.sched_getaffinity(0))}
    os.sched_setaffinity(shared, elsewhere)
    one_processor.part()
    assert (os.sched_getaffinity(shared), os.sched_getaffinity(0)) == (elsewhere, EVERYWHERE)
    one_processor.gather()
    assert not one_processor.is_shared(), "nor is it gathered from there"
    os.sched_setaffinity(shared, EVERYWHERE)
    one_processor.gather()
    assert one_processor.is_shared(), "control"


def test_nobody_is_gathered_on_the_only_processor_without_threads_or_with_one_that_ended() -> None:
    one_processor.gather()
    assert not one_processor.is_shared()
    with _thread() as thread:
        pass
    one_processor.share((thread,))
    one_processor.gather()
    assert (one_processor.is_shared(), os.sched_getaffinity(0)) == (False, EVERYWHERE)
    only = {min(EVERYWHERE)}
    with _thread() as thread:
        one_processor.share((thread,))
        try:
            os.sched_setaffinity(0, only)
            one_processor.gather()
            assert not one_processor.is_shared()
        finally:
            os.sched_setaffinity(0, EVERYWHERE)
            one_processor.share(())


def test_threads_are_parted_with_no_descriptor_left(shared: int) -> None:
    one_processor.gather()
    with room_for(0):
        one_processor.part()
        assert [os.sched_getaffinity(each) for each in (0, shared)] == [EVERYWHERE] * 2
        one_processor.gather()
        assert not one_processor.is_shared()
    one_processor.gather()
    assert one_processor.is_shared(), "control"


_CPUSET = Path("/sys/fs/cgroup/cpuset")
_SHRINK = """
import os, sys, threading
from pathlib import Path
from fumehood_server import one_processor

leaf, far = Path(sys.argv[1]), sys.argv[2]
(leaf / "cgroup.procs").write_text(str(os.getpid()))
go_on, ready = threading.Event(), threading.Event()
thread = threading.Thread(target=lambda: (ready.set(), go_on.wait()))
thread.start()
everywhere = os.sched_getaffinity(0)
one_processor.share((thread.native_id,))
one_processor.gather()
(here,) = os.sched_getaffinity(0)
cpus = (leaf / "cpuset.cpus").read_text()
(leaf / "cpuset.cpus").write_text(str(min(everywhere - {here}) if far == "far" else here))
one_processor.part()
one_processor.gather()
one_processor.part()
small = os.sched_getaffinity(0)
(leaf / "cpuset.cpus").write_text(cpus)
go_on.set()
print(len(small), os.sched_getaffinity(0) == everywhere)
"""


@pytest.mark.skipif(
    not os.access(_CPUSET / "cpuset.cpus", os.W_OK) or os.getuid() != 0,
    reason="no cpuset of version 1 can be made",
)
@pytest.mark.parametrize("far", ["far", "near"])
def test_processors_that_come_back_to_the_cpuset_are_used_again(far: str) -> None:
    """The kernel remembers what a thread asked for, and a cpuset that has changed while the threads were gathered."""
    leaf = Path(tempfile.mkdtemp(prefix="fumehood-test-", dir=_CPUSET))
    try:
        for name in ("cpuset.cpus", "cpuset.mems"):
            (leaf / name).write_text((_CPUSET / name).read_text())
        command = (sys.executable, "-c", _SHRINK, str(leaf), far)
        assert subprocess.check_output(command, timeout=BOUND_S) == b"1 True\n"
    finally:
        leaf.rmdir()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    logs = LogSink()
    async with asyncio.timeout(BOUND_S * 2), Pools(logs, SETTINGS) as pools:
        yield Bench(pools, logs)


@asynccontextmanager
async def _gathering() -> AsyncIterator[None]:
    """Within the block the threads are gathered whenever somebody parts them, as if calls went on and on."""

    async def gather() -> None:
        while True:
            one_processor.gather()
            await asyncio.sleep(0)

    gathering = asyncio.ensure_future(gather())
    try:
        yield
    finally:
        gathering.cancel()
        await asyncio.wait((gathering,))


@pytest.mark.parametrize("forks", [None, 0, 10], ids=["serves many", "launched for each", "forked for each"])
async def test_process_that_is_started_meanwhile_may_run_anywhere(
    shared: int, bench: Bench, forks: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker, a zygote, its attendant and its children alike."""
    parted: list[bool] = []
    for module, name in ((fumehood_sandbox, "start"), (zygote, "ForkServer")):
        real = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *args, real=real: parted.append(not one_processor.is_shared()) or real(*args)
        )
    spec = bench.spec(isolation=Isolation.PROCESS if forks is None else Isolation.CALL)
    assert isinstance(spec.program, PythonModule)
    spec = replace(spec, program=replace(spec.program, forks=forks or 0))
    before = _below()
    async with _gathering():
        for _ in range(3):
            found = await bench.run("import os\nresult = sorted(os.sched_getaffinity(0))", spec=spec)
            assert found == sorted(EVERYWHERE)
            assert one_processor.is_shared(), "control"
            assert _below() > before
            for pid in _below() - before:
                with suppress(ProcessLookupError):
                    assert os.sched_getaffinity(pid) == EVERYWHERE
        assert parted, "control: by one of the two"
        assert all(parted), "a thread that starts processes may have been there before"
        assert (len(attendants()) > 0) == (forks == 10)
        one_processor.gather()
        command = (sys.executable, "-c", "import os; print(len(os.sched_getaffinity(0)))")
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert (await process.communicate())[0] == b"1\n", "control: Linux hands it on"
    assert shared


def _below() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def _kept(sidecar: Sidecar) -> int:
    """How many of its threads are kept on one processor."""
    tasks = Path(f"/proc/{sidecar.process.pid}/task").iterdir()
    return sum(len(os.sched_getaffinity(int(task.name))) == 1 for task in tasks)


async def test_sidecar_gathers_its_threads_for_one_call_after_another_and_for_nobody_else(tmp_path: Path) -> None:
    with running_sidecar([write_plugin(tmp_path / "echo", "echo", _ECHO)]) as sidecar:
        async with asyncio.timeout(BOUND_S * 2), sidecar.channel() as channel:
            stub = ToolServiceStub(channel)

            async def call() -> None:
                result = (await stub.CallTool(pb.CallToolRequest(tool="echo", arguments_json='{"text": "x"}'))).result
                assert not result.is_error

            await asyncio.gather(*(call() for _ in range(100)))
            assert _kept(sidecar) == 0
            while not _kept(sidecar):
                await call()
            assert _kept(sidecar) == 2, "the loop's and gRPC's poller"
            while _kept(sidecar):
                await asyncio.gather(*(call() for _ in range(8)))
            while not _kept(sidecar):
                await call()
            while _kept(sidecar):  # noqa: ASYNC110 - nobody calls, and nobody tells
                await asyncio.sleep(0.05)
