"""Requests of a call that are given up before anything was done for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fumehood.v1 import plugin_pb2
from fumehood_sandbox import Level
from fumehood_server.model.call import CallContext
from fumehood_server.model.worker import Invocation
from fumehood_server.plugin_requests import PluginRequests
from fumehood_server.secrets import Redactor, SecretStore
from fumehood_server.workers import LogSink, Pools
from fumehood_server.workers.process.attempt import AttemptTable, WorkerAttempt
from fumehood_server.workers.process.lifecycle import Lifecycle
from fumehood_server.workers.process.requests import MAX_ASKED_BYTES, RequestRouter

from tests.faults.bench import BOUND_S, SETTINGS, Bench, misbehaving


class _Writer:
    unsent_bytes = 0

    def __init__(self) -> None:
        self.sent: list[plugin_pb2.HostFrame] = []

    def send(self, frame: bytes) -> None:
        self.sent.append(frame)

    async def drained(self, _: int) -> None:
        return


class _Nothing:
    """Answers nobody."""

    def http(self, *_: object) -> object:
        raise AssertionError("nobody is to be asked")


def _attempt(number: int) -> WorkerAttempt:
    invocation = Invocation(f"call-{number}", "t", "{}", CallContext(request_id="r"), 1, 1.0, None)
    return WorkerAttempt(None, number, invocation)  # type: ignore[arg-type] # nothing of its process is asked for


@contextlib.asynccontextmanager
async def _router(writer: _Writer) -> AsyncIterator[RequestRouter]:
    spec = misbehaving("serve", "", level=Level.NONE)
    life = Lifecycle(spec.plugin, "worker", LogSink().of(spec.plugin))
    async with asyncio.TaskGroup() as tasks:
        router = RequestRouter(spec, _Nothing(), Redactor(), writer=writer, table=AttemptTable(), life=life)  # type: ignore[arg-type] # fakes
        router.open(tasks, None)
        yield router


async def test_request_and_result_that_are_read_at_once_leave_room_for_other_calls() -> None:
    writer = _Writer()
    size = MAX_ASKED_BYTES // 4
    for number in range(1, 6):
        async with _router(writer) as router:
            router.take_http(_attempt(number), plugin_pb2.HttpRequest(request_id=1), size)
            router.end(number)
        assert router._asked_bytes == 0
    assert not writer.sent, "control: nothing is said of a call that is over"


async def test_request_that_is_read_with_its_call_s_cancellation_is_answered() -> None:
    writer = _Writer()
    async with _router(writer) as router:
        router.take_http(_attempt(1), plugin_pb2.HttpRequest(request_id=1), 100)
        router.cancel(1)
    assert len(writer.sent) == 1


async def test_process_whose_calls_ask_and_end_at_once_may_ask_on() -> None:
    logs = LogSink()
    requests = PluginRequests(SecretStore({}), logs, sink=lambda _: None)
    async with Pools(logs, SETTINGS, plugin_requests=requests) as pools:
        bench = Bench(pools, logs)
        spec = bench.spec()
        for _ in range(3):
            assert (await bench.call(spec, "asks_and_ends")).error is None
        async with bench.sole_worker(spec) as worker:
            async with asyncio.timeout(BOUND_S):
                while worker._requests._asked_bytes:  # type: ignore[attr-defined] # noqa: ASYNC110 - until the loop has told of it
                    await asyncio.sleep(0.001)
