"""Results that are kept for equal calls, where the operator says so."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import grpc
import pytest
import pytest_asyncio
from fumehood.v1 import plugin_service_pb2 as ppb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub
from fumehood_sandbox import Level
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.result_cache import MAX_BYTES, MAX_RESULT_BYTES, MAX_RESULTS, ResultCache
from fumehood_server.calls.steps.check import Checked
from fumehood_server.model.call import Block, CallContext, CallError, CallRequest
from fumehood_server.model.caller import Caller
from fumehood_server.model.taxonomy import Code

from tests.callers.support import bearer, token_of
from tests.calls.fake import tool
from tests.hooks.support import Client, client_of, deny, details, output
from tests.journal.reading import Recorded, data
from tests.sidecar import Sidecar, running_sidecar, write_plugin

CODE = """
import time
from fumehood_sdk import Plugin, ToolError

plugin = Plugin("clock", version="1.0.0")


@plugin.tool(side_effects="none", idempotent=True, isolation="process")
def now(zone: str = "", fail: bool = False) -> int:
    \"\"\"Tells the time.\"\"\"
    if fail:
        raise ToolError(str(time.monotonic_ns()))
    return time.monotonic_ns()


@plugin.tool(side_effects="none", idempotent=True, isolation="process")
def common() -> int:
    \"\"\"Is the same to all.\"\"\"
    return time.monotonic_ns()


@plugin.tool(side_effects="none", isolation="process")
def changing() -> int:
    \"\"\"Does not say that it may run twice.\"\"\"
    return time.monotonic_ns()


@plugin.tool(side_effects="read", idempotent=True, requires=["secret:key"], isolation="process")
def secretive() -> int:
    \"\"\"Takes a secret.\"\"\"
    return 1
"""
TOOLS = """
[plugin.tools.now]
cache_s = 3600
[plugin.tools.common]
cache_s = 3600
cache_shared = true
[plugin.tools.changing]
cache_s = 3600
[plugin.tools.secretive]
secrets = ["key"]
cache_s = 3600
"""
MORE = """
[secrets.key]
env = "PATH"
[[hook]]
name = "last"
tools = ["now"]
when_gone = "allow"
timeout_s = 5
[[caller]]
name = "ada"
tools = ["*"]
operator = true
[[caller]]
name = "bob"
tools = ["*"]
"""


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    plugin = write_plugin(tmp_path_factory.mktemp("plugins") / "clock", "clock", CODE)
    with running_sidecar([(plugin, TOOLS)], server='listen = ["unix:s", "127.0.0.1:0"]', more=MORE) as running:
        yield running


@pytest_asyncio.fixture
async def ada(clock: Sidecar) -> AsyncIterator[Client]:
    async with client_of(clock, clock.targets[1], bearer(token_of(clock.folder, "ada"))) as client:
        yield client


@pytest_asyncio.fixture
async def bob(clock: Sidecar) -> AsyncIterator[Client]:
    async with client_of(clock, clock.targets[1], bearer(token_of(clock.folder, "bob"))) as client:
        yield client


async def test_an_equal_call_of_the_same_caller_gets_the_result_and_runs_nothing(
    ada: Client, bob: Client, clock: Sidecar
) -> None:
    first = await ada.call("now", "first", zone="a")
    again = await ada.call("now", "again", fail=False, zone="a")  # the same, with a default written out
    assert output(again) == output(first)
    assert (again.attempts, again.cached.call_id, again.HasField("usage")) == (0, "first", False)
    assert not first.HasField("cached")
    others = [await ada.call("now", zone="b"), await bob.call("now", zone="a")]
    assert [each.attempts for each in others] == [1, 1]
    assert output(first) not in [output(each) for each in others]
    events = await Recorded(clock.folder).call_until("again", "execute_end")
    (end,) = data(events, "execute_end")
    assert (end["attempts"], end["cached_call_id"], end["result"]["kept"]) == (0, "first", True)
    assert end["cached_age_us"] > 0
    repeated = await ada.call("now", "again", zone="a")
    assert (output(repeated), repeated.cached.call_id) == (output(first), "first"), "its id stands for its outcome"


async def test_callers_share_results_where_the_operator_says_so_and_not_their_ids(ada: Client, bob: Client) -> None:
    first, again = await ada.call("common"), await bob.call("common")
    assert output(again) == output(first)
    assert again.HasField("cached")
    assert again.cached.call_id == ""


async def test_failures_are_not_kept_and_hooks_are_asked_as_for_any_call(ada: Client) -> None:
    one, two = [await ada.call("now", fail=True) for _ in range(2)]
    assert (one.attempts, two.attempts) == (1, 1)
    assert one.error.message != two.error.message
    await ada.call("now", zone="c")
    async with ada.serving("last", deny("no")):
        assert (await ada.call("now", zone="c")).error.code == "TOOL_DENIED"
    assert (await ada.call("now", zone="c")).HasField("cached")


async def test_a_tool_whose_results_do_not_hold_is_unavailable_with_a_cache(ada: Client) -> None:
    found = [await ada.call("changing"), await ada.call("secretive")]
    assert [each.error.code for each in found] == ["TOOL_UNAVAILABLE"] * 2
    reasons = [details(each)["reasons"][0]["code"] for each in found]
    assert reasons == ["cache_refused"] * 2


async def test_a_reload_of_the_plugin_forgets_its_results(ada: Client, clock: Sidecar) -> None:
    before = await ada.call("now", zone="d")
    assert (await ada.call("now", zone="d")).HasField("cached")
    async with grpc.aio.insecure_channel(clock.targets[1]) as channel:
        await PluginServiceStub(channel).ReloadPlugin(ppb.ReloadPluginRequest(name="clock"), metadata=ada.metadata)
    after = await ada.call("now", zone="d")
    assert (after.attempts, after.HasField("cached")) == (1, False)
    assert output(after) != output(before)
    streamed = ada.tools.StreamTool(
        pb.StreamToolRequest(call=pb.CallToolRequest(tool="now", arguments_json=json.dumps({"zone": "d"}))),
        metadata=ada.metadata,
    )
    *_, finished = [each async for each in streamed]
    assert output(finished.finished) == output(after)


def _request(call_id: str, caller: str = "ada") -> CallRequest:
    return CallRequest(
        call_id=call_id,
        tool="now",
        arguments_json="{}",
        context=CallContext(),
        timeout_s=None,
        caller_deadline=None,
        identity=Caller(name=caller),
    )


def test_the_cache_is_bounded_by_time_count_and_bytes() -> None:
    now = [0.0]
    cache = ResultCache(lambda: now[0])
    kept = replace(tool("now", level=Level.NONE), cache_s=10.0)

    def progress(hashed: object = "") -> Progress:
        return Progress(tool=kept, arguments_hash=str(hashed))

    small = Checked((Block(text="a"),))
    cache.keep(_request("one"), progress(), small)
    now[0] = 9.9
    assert cache.find(_request("two"), progress()) is small
    assert cache.find(_request("two", "bob"), progress()) is None
    assert cache.find(_request("two"), Progress(tool=replace(kept))) is None, "registered anew"
    cache.keep(_request("one"), progress(), small)
    now[0] = 20.0
    assert (cache.find(_request("two"), progress()), len(cache)) == (None, 0)
    cache.keep(_request("one"), progress(), Checked((Block(text="a" * (MAX_RESULT_BYTES + 1)),)))
    cache.keep(_request("one"), progress(), Checked(error=CallError(code=Code.TOOL_EXECUTION_FAILED, message="")))
    assert len(cache) == 0
    for number in range(MAX_RESULTS + 5):
        cache.keep(_request("one"), progress(number), small)
        assert cache.find(_request("two"), progress(0)) is small, "it was used last"
    assert len(cache) == MAX_RESULTS
    assert cache.find(_request("two"), progress(1)) is None
    large = Checked((Block(text="a" * MAX_RESULT_BYTES),))
    for number in range(40):
        cache.keep(_request("one"), progress(f"large {number}"), large)
    assert len(cache) == MAX_BYTES // MAX_RESULT_BYTES
