"""A hostile plugin's requests get a typed error or end its process, and never affect others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from fumehood.v1 import plugin_pb2
from fumehood_sandbox import Level, Policy
from fumehood_server.egress import EgressLimits, Reason
from fumehood_server.errors import PluginRequestError
from fumehood_server.model.call import CallContext
from fumehood_server.model.plugin import Kind, WorkerSpec
from fumehood_server.model.plugin_requests import RequestingCall
from fumehood_server.model.worker import CancelReason
from fumehood_server.plugin_requests import PluginRequests
from fumehood_server.plugins.launch.program import build
from fumehood_server.secrets import SecretSource, SecretStore
from fumehood_server.workers import LogSink, Pools
from fumehood_server.workers.wire import messages
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.bench import BOUND_S, SETTINGS, Bench, ended, error_of, invocation, misbehaving
from tests.sidecar import write_plugin

from .server import serving

pytestmark = pytest.mark.promise("S810")


@asynccontextmanager
async def bench(folder: Path) -> AsyncIterator[Bench]:
    """Pools whose calls are answered, with one secret that nobody is granted yet."""
    (folder / "key").write_text("a-secret-value")
    (folder / "key").chmod(0o600)
    logs = LogSink()
    store = SecretStore({"KEY": SecretSource(name="KEY", file=folder / "key")})
    limits = EgressLimits(max_response_bytes=1 << 30, max_received_bytes=1 << 30)
    requests = PluginRequests(store, logs, limits=limits)
    # What is asked on and on is cut where the machine is busy: that is no stall.
    settings = replace(SETTINGS, frame_stall_s=BOUND_S)
    async with Pools(logs, settings, plugin_requests=requests) as pools:
        yield Bench(pools, logs)


@pytest.mark.parametrize(
    ("tool", "violation"),
    [
        ("request_zero", "request_id"),
        ("request_twice", "request_id"),
        ("request_of_nobody", "unknown_invocation"),
        ("asks_on_and_on", "answers_not_read"),
    ],
)
async def test_a_request_against_the_rules_ends_the_process_and_no_other(
    tmp_path: Path, tool: str, violation: str
) -> None:
    async with bench(tmp_path) as calls:
        error = error_of(await calls.call(calls.spec(), tool))
        assert (error.code, error.details["violation"]) == ("TOOL_PROTOCOL_ERROR", violation)
        await calls.honest()
        await calls.until_gone()


async def test_a_request_after_the_result_ends_the_process(tmp_path: Path) -> None:
    async with bench(tmp_path) as calls:
        assert (await calls.call(calls.spec(), "request_after_result")).content[0].text == "done"
        await calls.until_gone()
        assert any("frame_after_result" in line.message for line in calls.logs.of("serve").last(50))
        await calls.honest()


async def test_requests_within_the_rules_are_answered_one_by_one(tmp_path: Path) -> None:
    async with bench(tmp_path) as calls:
        refused = (await calls.call(calls.spec(), "asks_politely")).content[0].text or ""
        assert refused.count("is not granted to this tool") == 3
        granted = replace(misbehaving("serve", calls.token), key="granted", secrets=("KEY",))
        answers = (await calls.call(granted, "asks_politely")).content[0].text or ""
        assert answers.count("granted") == 3
        assert "a-secret-value" not in answers


WORDS = st.text(max_size=30) | st.sampled_from(["GET", "POST", "http://a.example/", "https://[::1]:1/", "host", "\r\n"])


@given(
    message=st.builds(
        plugin_pb2.HttpRequest,
        method=WORDS,
        url=WORDS,
        headers=st.lists(st.builds(plugin_pb2.HttpHeader, name=WORDS, value=WORDS), max_size=3),
        body=st.binary(max_size=20),
        timeout=st.none() | st.builds(Duration, seconds=st.integers(-(2**40), 2**40), nanos=st.integers(-9, 9)),
        max_response_bytes=st.integers(0, 2**64 - 1),
        max_redirects=st.none() | st.integers(0, 2**32 - 1),
    ),
    level=st.sampled_from(Level),
)
def test_no_request_whatever_it_holds_ends_in_anything_but_words(message: plugin_pb2.HttpRequest, level: Level) -> None:
    spec = replace(misbehaving("serve", "", level=level), hosts=())
    caller = RequestingCall(spec=spec, tool="t", call_id="c", context=CallContext())

    async def ask() -> None:
        async with PluginRequests(SecretStore({}), LogSink(), sink=lambda _: None).http(
            caller, messages.http_ask(message)
        ):
            raise AssertionError("nothing is granted")

    with pytest.raises(PluginRequestError) as caught:
        asyncio.run(ask())
    assert caught.value.reason in set(Reason)
    assert caught.value.message.isprintable()
    assert messages.http_failure(1, 1, caught.value, after_head=False)


FLOODED = '''
import os
import signal
import time
from fumehood_sdk import Context, HttpRequest, Plugin

plugin = Plugin("flooded", version="1.0.0")


@plugin.tool(side_effects="read")
def stop_reading(url: str, ctx: Context) -> None:
    """Asks for much, and reads nothing."""
    ctx._call.grants.sidecar()._ask_http(ctx._call, 1, HttpRequest("GET", url))
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(3600)  # another thread may be the first to stop


@plugin.tool(side_effects="read")
def fetch(url: str, ctx: Context) -> int:
    """The control: asks, and reads."""
    return len(ctx.http.get(url).content)
'''


def flooded(folder: Path, host: str) -> WorkerSpec:
    write_plugin(folder, "flooded", FLOODED)
    built = build(Kind.PYTHON, folder, entrypoint="flooded:plugin")
    policy = Policy(
        level=Level.READ,
        runtime=built.runtime,
        environment=built.environment,
        working_directory=built.working_directory,
        identity="flooded",
    )
    return WorkerSpec(
        key="flooded",
        plugin="flooded",
        plugin_digest="sha256:0",
        policy=policy,
        program=built.program,
        output_bytes=1 << 20,
        max_workers=1,
        hosts=(host,),
        private=("127.0.0.1",),
    )


async def test_what_a_process_does_not_read_is_not_fetched_and_ends_with_the_call(tmp_path: Path) -> None:
    with serving() as web:
        async with bench(tmp_path) as calls:
            lease = await calls.pools.acquire(flooded(tmp_path / "flooded", web.host))
            large = lease.worker.invoke(invocation("fetch", arguments_json=f'{{"url": "{web.url}/large"}}'))
            assert (await ended(large)).details_json == "100000"
            arguments = f'{{"url": "{web.url}/flood"}}'
            handle = lease.worker.invoke(invocation("stop_reading", arguments_json=arguments))
            taken = await settled(lambda: web.sent)
            # What the buffers of two sockets and a pipe hold, and not the gigabyte that the server would send.
            assert 65536 <= taken < 32 << 20
            error = error_of(await handle.end(CancelReason.DEADLINE))
            assert error.details["ended_by"] == "sigkill"
            lease.release()
            assert await asyncio.to_thread(web.gone.wait, 20)
            await calls.honest()


async def settled(count: Callable[[], int]) -> int:
    """A number once it has been above 0 and the same over some time."""
    last, same = -1, 0
    async with asyncio.timeout(20):
        while same < 10:
            now = count()
            same = same + 1 if now == last and now else 0
            last = now
            await asyncio.sleep(0.1)
    return last
