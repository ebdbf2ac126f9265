"""Requests of a call that are given up before anything was done for them."""

from __future__ import annotations

import asyncio

from fumehood.v1 import plugin_pb2
from fumehood_sandbox import Level
from fumehood_server.model.call import CallContext
from fumehood_server.model.worker import Invocation
from fumehood_server.plugin_requests import PluginRequests
from fumehood_server.secrets import Redactor, SecretStore
from fumehood_server.workers import LogSink, Pools
from fumehood_server.workers.process.attempt import CallTable, WorkerCall
from fumehood_server.workers.process.requests import MAX_ASKED_BYTES, HostCallRouter

from tests.faults.bench import SETTINGS, Bench, misbehaving


class _Channel:
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


def _call(number: int) -> WorkerCall:
    invocation = Invocation(f"call-{number}", "t", "{}", CallContext(request_id="r"), 1, 1.0, None)
    done = asyncio.get_running_loop().create_future()
    return WorkerCall(number, invocation, done, lambda *_: None)


def _router(channel: _Channel) -> HostCallRouter:
    said: list[object] = []
    spec = misbehaving("serve", "", level=Level.NONE)
    router = HostCallRouter(spec, _Nothing(), Redactor(), on_violation=lambda *about: said.append(about))
    router.open(channel, CallTable(), None)
    return router


async def test_request_and_result_that_are_read_at_once_leave_room_for_other_calls() -> None:
    channel = _Channel()
    router = _router(channel)
    size = MAX_ASKED_BYTES // 4
    for number in range(1, 6):
        router.http(_call(number), plugin_pb2.HttpRequest(request_id=1), size)
        router.end(number)
        await asyncio.sleep(0.01)
    assert not channel.sent, "control: nothing is said of a call that is over"
    assert router._asked_bytes == 0


async def test_request_that_is_read_with_its_call_s_cancellation_is_answered() -> None:
    channel = _Channel()
    router = _router(channel)
    call = _call(1)
    router.http(call, plugin_pb2.HttpRequest(request_id=1), 100)
    router.cancel(1)
    await asyncio.sleep(0.01)
    assert len(channel.sent) == 1


async def test_process_whose_calls_ask_and_end_at_once_may_ask_on() -> None:
    logs = LogSink()
    requests = PluginRequests(SecretStore({}), logs, sink=lambda _: None)
    async with Pools(logs, SETTINGS, plugin_requests=requests) as pools:
        bench = Bench(pools, logs)
        spec = bench.spec()
        for _ in range(3):
            assert (await bench.call(spec, "asks_and_ends")).error is None
        async with bench.sole_worker(spec) as worker:
            assert worker._plugin_requests._asked_bytes == 0  # type: ignore[attr-defined]
