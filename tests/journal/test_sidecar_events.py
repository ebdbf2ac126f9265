"""What happens to calls and to the sidecar is an event: requests, secrets, limits, cancellations, refusals, workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_server.request_records import MAX_REFUSED_OF_CALL
from fumehood_server.rpc.refusals import BURST

from tests.rpc.support import ToolClient, call, refused, text_of
from tests.sidecar import Sidecar, running_sidecar, write_plugin
from tests.tool_requests.server import Web, serving

from .reading import BOUND_S, Recorded, data

CODE = '''
import os
import time
import urllib.request

from fumehood_sdk import Context, HttpRefused, Plugin

plugin = Plugin("web", version="1.0.0")


@plugin.tool(side_effects="read", isolation="process")
def ask(urls: list[str], ctx: Context) -> list[str]:
    """Asks."""
    found = []
    for url in urls:
        try:
            found.append(str(ctx.http.get(url, headers={"x-key": "header-value"}).status))
        except HttpRefused as error:
            found.append(error.reason)
    return found


@plugin.tool(side_effects="external", requires=["proxy"], isolation="call")
def relay(url: str) -> str:
    """Asks by the relay."""
    with urllib.request.urlopen(url, timeout=20) as response:
        return str(response.status)


@plugin.tool(side_effects="none", requires=["secret:TOKEN"], isolation="process")
def use(ctx: Context) -> str:
    """Uses a secret, and asks for another one."""
    value = ctx.secret("TOKEN")
    try:
        ctx.secret("OTHER")
    except Exception:
        return f"got {len(value)}"
    return "got both"


@plugin.tool(side_effects="none", isolation="process")
def hold(ctx: Context) -> str:
    """Waits."""
    ctx.update("here")
    time.sleep(3600)
    return ""


@plugin.tool(side_effects="none", isolation="process")
def count(to: int, ctx: Context) -> int:
    """Says each number."""
    for number in range(to):
        ctx.update(str(number))
    return to


@plugin.tool(side_effects="none", isolation="process")
def quick() -> str:
    """Answers at once."""
    return "quick"


@plugin.tool(side_effects="none", isolation="process")
def fill() -> int:
    """Takes more memory than it may."""
    return len(bytearray(1 << 30))


@plugin.tool(side_effects="none", isolation="process")
def leave(status: int) -> str:
    """Ends its process."""
    os._exit(status)


@plugin.tool(side_effects="none", isolation="call")
def alone() -> str:
    """Runs in a process of its own."""
    return "alone"
'''
VALUE = "a-secret-value"
SECRET_PATH = "/hello?key=in-the-query"  # noqa: S105 - a test's


@dataclass
class Client(ToolClient):
    web: Web
    recorded: Recorded


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sidecar, Web]]:
    folder = tmp_path_factory.mktemp("web")
    (folder / "token").write_text(VALUE)
    (folder / "token").chmod(0o600)
    plugin = write_plugin(folder / "plugin", "web", CODE)
    with serving() as web:
        lines = (
            f'max_side_effects = "external"\nhosts = ["{web.host}"]\nallow_private = ["127.0.0.1"]\n'
            '[plugin.tools.relay]\npermission = "allow"\n[plugin.tools.use]\nsecrets = ["TOKEN"]\n'
        )
        more = f'[journal]\nstore = "sqlite"\n[secrets.TOKEN]\nfile = "{folder}/token"\n'
        with running_sidecar([(plugin, lines)], more=f"{more}[limits.cap]\nmemory_bytes = 134217728\n") as sidecar:
            yield sidecar, web


@pytest.fixture
async def client(served: tuple[Sidecar, Web]) -> AsyncIterator[Client]:
    sidecar, web = served
    async with sidecar.channel() as channel:
        yield Client(sidecar, channel, web, Recorded(sidecar.folder))


async def test_the_end_of_a_call_says_how_many_updates_it_sent_whether_or_not_they_were_wanted(client: Client) -> None:
    await client.tools.CallTool(call("count", {"to": 3}, call_id="unwanted"))
    streamed = client.tools.StreamTool(pb.StreamToolRequest(call=call("count", {"to": 4}, call_id="wanted")))
    assert [event.WhichOneof("event") async for event in streamed].count("update") == 4
    await client.tools.CallTool(call("count", {"to": 0}, call_id="none"))
    for call_id, updates in (("unwanted", 3), ("wanted", 4), ("none", 0)):
        events = await client.recorded.call_until(call_id, "execute_end")
        assert data(events, "execute_end")[0]["updates"] == updates
        assert "execute_update" not in {each["type"] for each in events}


async def test_each_request_through_the_broker_is_an_event_without_headers_path_or_query(client: Client) -> None:
    web, urls = client.web, [f"{client.web.url}{SECRET_PATH}", f"{client.web.url}/redirect", "http://else.example/"]
    context = {"request_id": "run-web", "trace_id": "trace-1"}
    result = (await client.tools.CallTool(call("ask", {"urls": urls}, call_id="web", context=context))).result
    assert json.loads(text_of(result)) == ["200", "200", "host_not_granted"]
    events = await client.recorded.call_until("web", "execute_end")
    assert [each["number"] for each in events] == [1, 2, 3, 4, 5, 6]
    assert [each["type"] for each in events][-2:] == ["execute_values", "execute_end"]
    assert {each["context"]["trace_id"] for each in events} == {"trace-1"}
    got, redirected, denied = data(events, "egress")
    assert (got["method"], got["outcome"], got["reason"]) == ("GET", "done", "")
    assert got["hops"] == [
        {"scheme": "http", "host": "127.0.0.1", "port": web.port, "address": "127.0.0.1", "status": 200}
    ]
    assert min(got["sent_bytes"], got["received_bytes"], got["wall_us"]) > 0
    assert [hop["status"] for hop in redirected["hops"]] == [302, 200]
    assert (denied["outcome"], denied["reason"], denied["hops"][0]["host"]) == (
        "refused",
        "host_not_granted",
        "else.example",
    )
    assert data(events, "execute_end")[0]["requests"] == 3
    told = json.dumps(data(events, "egress"))
    assert "header-value" not in told
    assert "in-the-query" not in told
    assert "/hello" not in told


async def test_a_flood_of_refused_requests_of_one_call_is_bounded_and_counted(client: Client) -> None:
    urls = ["http://else.example/"] * 200
    await client.tools.CallTool(call("ask", {"urls": urls}, call_id="flood"))
    events = await client.recorded.call_until("flood", "execute_end")
    assert len(data(events, "egress")) == MAX_REFUSED_OF_CALL
    assert data(events, "execute_end")[0]["requests"] == 200


async def test_what_goes_through_the_relay_is_an_event_of_its_call(client: Client) -> None:
    await client.tools.CallTool(call("relay", {"url": f"{client.web.url}/hello"}, call_id="relay"))
    events = await client.recorded.call_until("relay", "execute_end")
    (asked,) = data(await client.recorded.call_until("relay", "egress"), "egress")
    assert (asked["outcome"], asked["hops"][0]["status"]) == ("done", 200)
    assert data(events, "execute_end")[0]["requests"] == 1


async def test_secrets_are_told_by_name(client: Client) -> None:
    result = (await client.tools.CallTool(call("use", call_id="use"))).result
    assert text_of(result) == f"got {len(VALUE)}"
    events = await client.recorded.call_until("use", "execute_end")
    assert [(each["name"], each["refused"]) for each in data(events, "secret_requested")] == [
        ("TOKEN", ""),
        ("OTHER", "secret_not_granted"),
    ]
    assert VALUE.encode() not in client.recorded.path.read_bytes()


async def test_a_limit_that_ended_a_call_is_named(client: Client) -> None:
    await client.tools.CallTool(call("fill", call_id="fill"))
    (reached,) = data(await client.recorded.call_until("fill", "execute_end"), "limit_reached")
    assert (reached["limit"], reached["value"], reached["unit"]) == ("memory_bytes", 134217728, "bytes")
    await client.tools.CallTool(call("quick"))  # its process is there, so that the next call comes to run
    late = call("hold", call_id="late")
    late.timeout.FromMilliseconds(1500)
    await client.tools.CallTool(late)
    (reached,) = data(await client.recorded.call_until("late", "execute_end"), "limit_reached")
    assert (reached["limit"], reached["bound"], reached["value"]) == ("timeout_s", "request", 1.5)
    assert reached["ended_by"]
    await client.tools.CallTool(call("alone", call_id="well"))
    assert not data(await client.recorded.call_until("well", "execute_end"), "limit_reached")


async def held(client: Client, call_id: str) -> grpc.aio.UnaryStreamCall[pb.StreamToolRequest, pb.StreamToolResponse]:
    stream = client.tools.StreamTool(pb.StreamToolRequest(call=call("hold", call_id=call_id)))
    async with asyncio.timeout(BOUND_S):
        while (await stream.read()).WhichOneof("event") != "update":
            pass
    return stream  # type: ignore[no-any-return] # the stub is of both kinds


async def test_a_cancellation_says_who_asked_for_it(client: Client) -> None:
    stream = await held(client, "ended")
    await client.tools.CancelCall(pb.CancelCallRequest(call_id="ended", reason="enough"))
    await client.tools.CancelCall(pb.CancelCallRequest(call_id="ended", reason="again"))
    assert (await stream.read()).finished.error.code == "CANCELLED_SIGNAL"
    events = await client.recorded.call_until("ended", "execute_cancelled")
    assert data(events, "cancel_requested") == [{"by": "unix:", "note": "enough"}]
    (end,) = data(events, "execute_cancelled")
    assert (end["reason"], end["by"]) == ("caller", "unix:")
    assert data(events, "execute_start")[0]["caller"] == "unix:"
    left = await held(client, "left")
    left.cancel()
    (end,) = data(await client.recorded.call_until("left", "execute_cancelled"), "execute_cancelled")
    assert (end["reason"], end["by"]) == ("caller", "unix:")


async def test_refused_requests_are_events_and_no_events_of_the_calls_they_name(client: Client) -> None:
    await client.tools.CallTool(call("alone", call_id="mine"))
    before = len(await client.recorded.call_until("mine", "execute_end"))
    context = {"request_id": "run-refused"}
    status, reason = await refused(client.tools.CallTool(call("use", call_id="mine", context=context)))
    assert (status, reason) == (grpc.StatusCode.ALREADY_EXISTS, "CALL_ID_IN_USE")
    await refused(client.tools.CancelCall(pb.CancelCallRequest(call_id="nothing")))
    await refused(client.tools.CallTool(call("use", call_id="white space")))
    events = await client.recorded.until(lambda: client.recorded.events("request_refused"), 3)
    told = {(each["data"]["method"], each["data"]["reason"], each["data"]["call_id"]) for each in events}
    assert told == {
        ("CallTool", "CALL_ID_IN_USE", "mine"),
        ("CancelCall", "CALL_NOT_FOUND", "nothing"),
        ("CallTool", "REQUEST_INVALID", "white space"),
    }
    in_use = next(each for each in events if each["data"]["reason"] == "CALL_ID_IN_USE")
    assert (in_use["run_id"], in_use["tool"], in_use["data"]["caller"]) == ("run-refused", "use", "unix:")
    assert len(client.recorded.call("mine")) == before


async def test_workers_are_told_of_from_their_start_to_their_end(client: Client) -> None:
    await client.tools.CallTool(call("alone"))
    await client.tools.CallTool(call("leave", {"status": 3}, call_id="leave"))
    events = await client.recorded.call_until("leave", "execute_end")
    worker_id = data(events, "execute_end")[0]["worker_id"]

    def ended() -> list[dict[str, object]]:
        return [each for each in client.recorded.events("worker_ended") if each["data"]["worker_id"] == worker_id]

    (end,) = await client.recorded.until(ended)
    assert (end["plugin"], end["call_id"], end["data"]["by_itself"]) == ("web", "", True)
    assert "3" in end["data"]["exit"]
    assert end["data"]["cause"]["code"] == "TOOL_UNAVAILABLE"
    starts = {each["data"]["worker_id"]: each["data"] for each in client.recorded.events("worker_started")}
    start = starts[worker_id]
    assert (start["level"], start["isolation"], start["plugin"][:7]) == ("none", "process", "sha256:")
    assert start["receipt"] == data(events, "execute_end")[0]["receipt"]
    assert start["backend"]
    assert [each for each in starts if "zygote" in each]
    assert len(starts) < 10


async def test_the_whole_of_it_is_what_was_signed(client: Client) -> None:
    await client.tools.CallTool(call("alone", call_id="signed"))
    await client.recorded.call_until("signed", "execute_end")
    assert client.recorded.verified().fault is None


async def test_a_flood_of_refusals_is_counted_and_none_is_lost(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path / "plugin", "web", CODE)
    sent = BURST + 500
    with running_sidecar([plugin], more='[journal]\nstore = "sqlite"\n', at=tmp_path) as sidecar:
        async with sidecar.channel() as channel:
            tools = ToolClient(sidecar, channel).tools
            wrong = pb.CallToolRequest(tool="", call_id="x")
            for _ in range(sent // 4):
                answers = await asyncio.gather(*(tools.CallTool(wrong) for _ in range(4)), return_exceptions=True)
                assert all(isinstance(each, grpc.aio.AioRpcError) for each in answers)
    recorded = Recorded(tmp_path)
    single = recorded.events("request_refused")
    counted = [each["data"] for each in recorded.events("requests_refused")]
    assert BURST <= len(single) < BURST + 20
    assert {each["reason"] for each in counted} == {"REQUEST_INVALID"}
    assert len(single) + sum(each["count"] for each in counted) == sent
    assert recorded.verified().fault is None
