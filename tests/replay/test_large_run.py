"""A run is read a page at a time: a long one takes no more memory than a short one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop
from fumehood.v1 import journal_service_pb2 as pb
from fumehood.v1.journal_service_pb2_grpc import JournalServiceStub
from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.config import load_config
from fumehood_server.config.config_file import MAX_PAYLOAD_BYTES
from fumehood_server.journal import JOURNAL_NAME
from fumehood_server.journal.place import FilePlace
from fumehood_server.journal.reads import JournalReads
from fumehood_server.journal.sqlite import SqliteReader
from fumehood_server.replay.record import PAGE_BYTES, RunPages, read_run
from fumehood_server.rpc.journal_replaying import replayed, verified
from fumehood_server.telemetry import get_logger
from fumehood_server.telemetry.loop_watchdog import NOTED_S

from tests.journal.test_large import MARGIN_BYTES, grown
from tests.loop_steps import longest_step_s
from tests.rpc.support import BOUND_S
from tests.sidecar import Sidecar, running_sidecar

from .runs import RUN, journal_of_run

pytestmark = pytest.mark.slow("records and replays thousands of calls")

RESULT_BYTES = 100_000
CALLS = 640
LARGE_CALLS = 3


@pytest.fixture(scope="module")
def large_results() -> Iterator[Path]:
    """Calls with the largest result that there may be, which is six times as long as JSON."""
    with journal_of_run(LARGE_CALLS, MAX_PAYLOAD_BYTES, "\x01") as config:
        yield config


@pytest.fixture(scope="module")
def long_run() -> Iterator[Path]:
    with journal_of_run(CALLS, RESULT_BYTES) as config:
        yield config


def test_a_long_run_is_replayed_in_the_memory_of_a_short_one(long_run: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    with journal_of_run(20, RESULT_BYTES) as short:
        assert CALLS * RESULT_BYTES > 1.5 * MARGIN_BYTES
        commands = (("replay", RUN), ("replay", RUN, "-o", str(file)))
        assert grown(long_run, short, commands) == {}


def test_pages_have_every_call_once_in_order_and_end(long_run: Path) -> None:
    reader = SqliteReader(long_run.with_name(".fumehood") / JOURNAL_NAME)
    assert [each.call_id for each in read_run(reader, RUN)] == [f"call-{number}" for number in range(CALLS)]
    pages = RunPages(RUN)
    sizes = []
    while not pages.done:
        sizes.append(sum(each.size for each in pages.read(reader)))
    assert max(sizes) < PAGE_BYTES + 3 * RESULT_BYTES
    (one,) = read_run(reader, "call-7")
    assert one.call_id == "call-7"
    assert [*read_run(reader, "nothing")] == []


async def test_a_long_run_is_replayed_over_grpc_in_bounded_memory(long_run: Path) -> None:
    with running_sidecar(at=long_run.parent) as sidecar:
        before = peak_memory(sidecar)
        async with sidecar.channel() as channel, sidecar.channel() as other:
            stopped = JournalServiceStub(other).ReplayRun(pb.ReplayRunRequest(run=RUN))
            await stopped.read()  # and no more of it, while all of the run goes to somebody else, twice
            for verify in (False, True):
                calls = 0
                request = pb.ReplayRunRequest(run=RUN, verify=verify)
                async for message in JournalServiceStub(channel).ReplayRun(request, timeout=BOUND_S):
                    calls += len(message.calls)
                assert (calls, message.summary.calls) == (CALLS, CALLS)
            assert message.summary.not_run == CALLS  # its plugin is nowhere: they were read and handed over
            assert peak_memory(sidecar) - before < MARGIN_BYTES
            stopped.cancel()


def test_no_step_of_a_replay_takes_the_event_loop_for_20_ms(large_results: Path) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as the sidecar's
        runner.run(replay_within_20_ms(large_results))


async def replay_within_20_ms(path: Path) -> None:
    config = load_config(path)
    reads = JournalReads(FilePlace(config.server.state_dir / JOURNAL_NAME), list)

    async def replay_and_verify() -> None:
        async with DocumentChecks(get_logger()) as checks:
            for messages in (replayed(RUN, reads, checks), verified(RUN, reads, checks, config)):
                assert len([each async for each in messages]) == LARGE_CALLS + 1

    try:
        assert await longest_step_s(replay_and_verify) < NOTED_S
    finally:
        await asyncio.to_thread(reads.close)


def peak_memory(sidecar: Sidecar) -> int:
    """The most bytes that it had resident so far (proc_pid_status(5))."""
    status = Path(f"/proc/{sidecar.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
