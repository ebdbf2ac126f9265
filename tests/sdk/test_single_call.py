"""A process with one call, without its sandbox: what comes to it after the call, and what it takes for that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fumehood.v1.plugin_pb2 import HostFrame, Invoke, SecretResponse

from tests.sdk.client import PluginClient, started

SHORT_MS, LONG_MS = 10, 60_000
PROGRAM = '''
import asyncio
import os
import signal
import sys
import threading
import time

from fumehood_sdk import Cancelled, Context, Plugin
from fumehood_sdk.call import Grants
from fumehood_sdk.runtime.single_call import SingleCallEngine

plugin = Plugin("one", version="1.0.0")


def threads():
    return len(os.listdir("/proc/self/task"))


@plugin.tool(side_effects="none")
def poll(ctx: Context) -> str:
    """Look now and then."""
    ctx.update("begun")
    while not ctx.cancelled:
        time.sleep(0.001)
    try:
        ctx.check_cancelled()
    except Cancelled as error:
        sys.stderr.write(f"{error} {threads()}\\n")
    return "seen"


@plugin.tool(side_effects="none")
def count() -> str:
    """Count the threads."""
    return str(threads())


@plugin.tool(side_effects="none")
def doze(ctx: Context) -> None:
    """Be woken."""
    def say():
        while not ctx._call.cancel_callbacks:
            time.sleep(0.001)
        ctx.update("begun")

    helper = threading.Thread(target=say)
    helper.start()
    try:
        ctx.sleep(60)
    except Cancelled as error:
        helper.join()
        sys.stderr.write(f"{error} {threads()}\\n")
        raise


@plugin.tool(side_effects="none")
def deaf(ctx: Context) -> None:
    """Be interrupted."""
    ctx.update("begun")
    while True:
        time.sleep(0.001)


@plugin.tool(side_effects="none")
def deep(room: int, ctx: Context) -> str:
    """Be told with so many frames left on the stack, and look again higher up."""
    call = ctx._call

    def up():
        try:
            above = up()
        except RecursionError:
            return 1
        if above != room:
            return above + 1
        try:
            for _ in range(500):
                if call.cancel_reason is None:
                    time.sleep(0.001)
        except RecursionError:
            pass
        return -1_000_000

    sys.setrecursionlimit(120)
    ctx.update("begun")
    up()
    ctx.update("up")
    while not ctx.cancelled:
        time.sleep(0.001)
    return "seen"


@plugin.tool(side_effects="none")
async def wait(ctx: Context) -> None:
    """Be cancelled as a task."""
    ctx.update("begun")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        sys.stderr.write(f"cancelled {threads()}\\n")
        raise


@plugin.tool(side_effects="none", requires=["secret:KEY"])
def ask(ctx: Context) -> str:
    """Ask while no signal is heard."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
    return ctx.secret("KEY") + ctx.secret("KEY")


@plugin.tool(side_effects="none", requires=["secret:KEY"])
async def ask_async(ctx: Context) -> str:
    """The same, on a loop."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
    return await ctx.asecret("KEY") + await ctx.asecret("KEY")


import fumehood_sdk.runtime.aio

engine = SingleCallEngine(plugin.tools, Grants(), max_frame_bytes=1 << 20)
engine.prepare_for_fork()
engine.serve()
'''


@pytest.fixture
def client(tmp_path: Path) -> Iterator[PluginClient]:
    with started(["-c", PROGRAM], tmp_path) as client:
        yield client


def _begun(client: PluginClient, tool: str, arguments: str = "{}") -> int:
    call = client.invoke(tool, arguments)
    client.wait("update", call)
    return call


def _seen(client: PluginClient) -> tuple[str, int]:
    """Why the tool was told to end, and how many threads there were then."""
    reason, threads = client.stderr().split()
    return reason, int(threads)


def test_call_that_nothing_comes_for_has_one_thread(client: PluginClient) -> None:
    assert client.call("count").content[0].text == "1"


@pytest.mark.parametrize("grace_ms", [SHORT_MS, LONG_MS])
def test_cancellation_is_seen_however_short_the_time(client: PluginClient, grace_ms: int) -> None:
    call = _begun(client, "poll")
    client.cancel(call, grace_ms=grace_ms)
    assert client.result(call).content[0].text == "seen"
    assert _seen(client)[0] == "caller"


@pytest.mark.parametrize("grace_ms", [SHORT_MS, LONG_MS])
@pytest.mark.parametrize("tool", ["doze", "wait"])
def test_what_waits_is_woken_however_short_the_time(client: PluginClient, tool: str, grace_ms: int) -> None:
    call = _begun(client, tool)
    client.cancel(call, grace_ms=grace_ms)
    assert client.result(call).HasField("error")
    assert _seen(client)[0] == ("caller" if tool == "doze" else "cancelled")
    assert _seen(client)[1] > 1


@pytest.mark.parametrize("tool", ["ask", "ask_async"])
def test_answer_comes_also_where_the_signal_that_tells_of_it_is_not_heard(client: PluginClient, tool: str) -> None:
    call = client.invoke(tool)
    for text in (b"a", b"b"):
        request = client.wait("secret_request", call).secret_request
        answer = SecretResponse(invocation_id=call, request_id=request.request_id, value=text)
        client.send(HostFrame(secret_response=answer))
    assert client.result(call).content[0].text == "ab"


def test_longer_cancellation_after_a_short_one_still_leaves_the_call_cancelled_once(client: PluginClient) -> None:
    call = _begun(client, "poll")
    client.cancel(call, grace_ms=SHORT_MS)
    client.cancel(call, grace_ms=LONG_MS)
    assert client.result(call).content[0].text == "seen"


def test_tool_that_never_looks_is_interrupted_where_there_is_time(client: PluginClient) -> None:
    call = _begun(client, "deaf")
    client.cancel(call, grace_ms=LONG_MS)
    assert client.result(call).HasField("error")


@pytest.mark.parametrize("room", [1, 2, 3, 4, 5, 6, 8, 10, 15, 20])
def test_cancellation_that_finds_no_stack_left_does_not_keep_out_the_next(client: PluginClient, room: int) -> None:
    call = _begun(client, "deep", f'{{"room": {room}}}')
    client.cancel(call, grace_ms=SHORT_MS)
    client.wait("update", call)
    client.cancel(call, grace_ms=SHORT_MS)
    assert client.result(call).content[0].text == "seen"


def test_bytes_that_are_no_frame_end_the_process_as_they_do_elsewhere(client: PluginClient) -> None:
    call = _begun(client, "poll")
    client.send_bytes(b"\x02\x1a\x7f")  # a cancel of 127 bytes, of which none are there
    assert client.result(call).content[0].text == "seen"
    assert _seen(client)[0] == "shutdown"
    assert client.exit_status() == 0


def test_many_frames_without_a_meaning_lose_no_cancellation(client: PluginClient) -> None:
    call = _begun(client, "poll")
    for _ in range(2000):
        client.send_bytes(b"\x03\xfa\x3f\x00")  # field 1023, empty: of a sidecar that knows more
    client.cancel(call + 1, grace_ms=SHORT_MS)  # nobody's
    client.cancel(call, grace_ms=SHORT_MS)
    assert client.result(call).content[0].text == "seen"
    assert _seen(client)[0] == "caller"


def test_frame_in_pieces_is_waited_for(client: PluginClient) -> None:
    call = _begun(client, "poll")
    frame = HostFrame()
    frame.cancel.invocation_id, frame.cancel.reason = call, 1
    frame.cancel.grace.FromMilliseconds(SHORT_MS)
    data = frame.SerializeToString()
    for byte in (bytes((len(data),)) + data)[:-1]:
        client.send_bytes(bytes((byte,)))
    client.send_bytes(data[-1:])
    assert client.result(call).content[0].text == "seen"
    assert _seen(client)[0] == "deadline"


def test_second_call_is_refused_and_the_first_goes_on(client: PluginClient) -> None:
    call = _begun(client, "poll")
    client.send(HostFrame(invoke=Invoke(invocation_id=call + 1, tool="poll", arguments_json="{}")))
    assert client.result(call + 1).error.reason == "too_many_calls"
    client.cancel(call, grace_ms=SHORT_MS)
    assert client.result(call).content[0].text == "seen"


def test_end_of_stdin_after_a_noted_cancellation_ends_the_process(client: PluginClient) -> None:
    call = _begun(client, "deaf")
    client.cancel(call, grace_ms=SHORT_MS)
    client.end_input()
    assert client.exit_status() == 0
