"""Ending a call: the rungs, what each reports, and that nothing of the tree is left, whoever asked for the end."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1 import tool_service_pb2_grpc as tool_grpc
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Isolation
from fumehood_server.model.worker import CancelReason
from fumehood_server.workers import LogSink, Pools

from tests.faults.bench import BOUND_S, ended, error_of, invocation, processes
from tests.sidecar import Sidecar, write_plugin

from .support import SETTINGS, Hood, spec_of

pytestmark = pytest.mark.promise("S606")


@pytest.fixture
async def hood() -> AsyncIterator[Hood]:
    logs = LogSink()
    async with asyncio.timeout(BOUND_S * 2), Pools(logs, SETTINGS) as pools:
        yield Hood(pools, logs, spec_of(), spec_of(identity="honest"))


async def said(logs: LogSink, words: str) -> None:
    """Wait until the hostile plugin has written this to its log."""
    lines = logs.of("hostile").subscribe()
    if any(words in line.message for line in logs.of("hostile").last(1000)):
        return
    async for line in lines:
        if words in line.message:
            return


async def until_dead(token: str) -> None:
    """Wait for the end of every process that carries the token."""
    for line in processes(token):
        try:
            pidfd = os.pidfd_open(int(line.split()[0]))
        except ProcessLookupError:
            continue
        dead = await asyncio.to_thread(select.select, [pidfd], [], [], BOUND_S)
        assert dead[0], f"still alive: {line}"
        os.close(pidfd)
    assert processes(token) == []


@pytest.mark.parametrize("reason", [CancelReason.DEADLINE, CancelReason.CALLER])
@pytest.mark.parametrize("isolation", list(Isolation))
async def test_a_tree_that_ignores_everything_is_dead_when_its_call_has_ended(
    hood: Hood, reason: CancelReason, isolation: Isolation
) -> None:
    token = uuid.uuid4().hex
    spec = replace(hood.spec, key=f"{token}", isolation=isolation)
    lease = await hood.pools.acquire(spec)
    call = lease.worker.invoke(invocation("refuse_to_end", arguments_json=json.dumps({"token": token})))
    await said(hood.logs, f"started {token}")
    await until_running(token)
    ending = asyncio.ensure_future(call.end(reason))
    await hood.honest()
    error = error_of(await ending)
    assert error.details["ended_by"] == "sigkill"
    assert error.code is (Code.TOOL_TIMEOUT if reason is CancelReason.DEADLINE else Code.CANCELLED_SIGNAL)
    await until_dead(token)
    lease.release()


async def test_a_call_that_answers_its_cancellation_keeps_its_warm_process() -> None:
    # With time for the answer on a machine that does other things as well.
    async with asyncio.timeout(BOUND_S * 2), Pools(LogSink(), replace(SETTINGS, cancel_grace_s=BOUND_S)) as pools:
        lease = await pools.acquire(spec_of())
        call = lease.worker.invoke(invocation("spin", arguments_json='{"seconds": 120}'))
        assert error_of(await call.end(CancelReason.DEADLINE)).details["ended_by"] == "cancel_frame"
        assert (await ended(lease.worker.invoke(invocation("echo", arguments_json='{"text": "x"}')))).error is None
        lease.release()


CODE = """
    import os, signal, sys, time
    from fumehood_sdk import Plugin

    plugin = Plugin("stubborn", version="1.0.0")

    @plugin.tool(side_effects="none")
    def answer() -> None:
        \"\"\"Has its process started, and others beside it.\"\"\"

    @plugin.tool(side_effects="none", timeout_s=60)
    def hang(token: str) -> str:
        \"\"\"Start a child that left its session, and wait for ever.\"\"\"
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", "while True: pass", token])
            os._exit(0)
        os.wait()
        sys.stderr.write("started " + token + "\\\\n")
        sys.stderr.flush()
        while True:
            try:
                time.sleep(60)
            except BaseException:
                pass
"""


TIMEOUT_S = 4.0
"""A process has to be forked and another one started within it, on a busy machine too."""


async def until_running(token: str) -> None:
    async with asyncio.timeout(BOUND_S):
        while not processes(token):  # noqa: ASYNC110 - the process table tells nobody
            await asyncio.sleep(0.02)


def request(token: str, **more: object) -> pb.CallToolRequest:
    message = pb.CallToolRequest(tool="hang", call_id=token, arguments_json=json.dumps({"token": token}))
    if "timeout_s" in more:
        message.timeout.FromMilliseconds(int(float(str(more["timeout_s"])) * 1000))
    return message


@pytest.mark.parametrize("how", ["timeout", "cancel", "disconnect", "sigkill"])
async def test_the_real_sidecar_leaves_no_process_whatever_ends_a_call(
    start_sidecar: Callable[..., Sidecar], tmp_path: Path, how: str
) -> None:
    sidecar = start_sidecar([write_plugin(tmp_path / "stubborn", "stubborn", CODE)])
    token = uuid.uuid4().hex
    async with asyncio.timeout(BOUND_S * 2), sidecar.channel() as channel:
        stub = tool_grpc.ToolServiceStub(channel)
        answered = await stub.CallTool(pb.CallToolRequest(tool="answer", arguments_json="{}"))
        assert not answered.result.is_error, answered
        call = stub.CallTool(request(token, **({"timeout_s": TIMEOUT_S} if how == "timeout" else {})))
        task = asyncio.ensure_future(_answer(call))
        await until_running(token)
        if how == "cancel":
            await stub.CancelCall(pb.CancelCallRequest(call_id=token))
        elif how == "disconnect":
            call.cancel()
        elif how == "sigkill":
            sidecar.signal(signal.SIGKILL)
        answer = await task
        if how == "timeout":
            assert answer is not None
            details = json.loads(answer.result.error.details_json)
            assert answer.result.error.code == "TOOL_TIMEOUT"
            assert (details["limit"], details["value"], details["unit"]) == ("timeout_s", TIMEOUT_S, "s")
            assert details["usage"] >= TIMEOUT_S
            assert details["ended_by"] == "sigkill"
        elif how == "cancel":
            assert answer is not None
            assert json.loads(answer.result.error.details_json)["ended_by"] == "sigkill"
        await until_dead(token)
        if how != "sigkill":
            # The control: the same plugin is served by another process.
            again = await stub.GetTool(pb.GetToolRequest(name="hang"))
            assert again.tool.availability.available


async def _answer(call: object) -> pb.CallToolResponse | None:
    try:
        return await call  # type: ignore[no-any-return, misc] # grpc's stubs know no common type of calls
    except (asyncio.CancelledError, Exception):  # noqa: BLE001 - what a client sees that leaves, or is left
        return None


async def test_a_process_that_carries_a_token_is_found() -> None:
    """The control of `processes`: a process that carries a token is found."""
    token = uuid.uuid4().hex
    command = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()", token]
    with subprocess.Popen(command, stdin=subprocess.PIPE):  # noqa: ASYNC220 - nothing else runs here
        await until_running(token)
    assert processes(token) == []
