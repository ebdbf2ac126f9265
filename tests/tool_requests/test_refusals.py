"""Refused requests: the error that the plugin gets, and the line in its log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
from fumehood.v1 import plugin_service_pb2
from fumehood_server.plugin_requests import RELAY_LINES_BURST

from tests.rpc.support import BOUND_S, ToolClient
from tests.sidecar import Sidecar, running_sidecar, write_plugin

from .server import Web, serving

pytestmark = pytest.mark.promise("S810")

CODE = '''
import os
import socket
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from fumehood_sdk import Context, HttpRefused, Plugin
from fumehood_sdk.wire import plugin_requests, varint
from fumehood_sdk.wire.fields import bytes_field, encode_text, number_field

plugin = Plugin("web", version="1.0.0")

BOUNDS = {
    "nan": float("nan"), "inf": float("inf"), "-inf": float("-inf"), "true": True, "zero": 0, "negative": -1,
    "huge": 1e300, "long": 3600.1, "digits": 10**5000, "word": "5", "little": 1e-12, "most": 3600, "none": None,
    "ten": 10, "half": 2.5,
}


@plugin.tool(side_effects="read", idempotent=True)
def ask(url: str, name: str, value: str, ctx: Context) -> str:
    """Asks within a bound."""
    return str(ctx.http.get(url, **{name: BOUNDS[value]}).status)


@plugin.tool(side_effects="read", idempotent=True)
async def ask_later(url: str, name: str, value: str, ctx: Context) -> str:
    """Asks within a bound, from an event loop."""
    return str((await ctx.http.aget(url, **{name: BOUNDS[value]})).status)


@plugin.tool(side_effects="read", idempotent=True)
def ask_by_the_wire(url: str, seconds: int, nanos: int, ctx: Context) -> str:
    """Asks as a program without the SDK may: with any duration that the wire can carry."""
    call = ctx._call
    sidecar = call.grants.sidecar()

    def raw(call, number, request):
        duration = b""
        for tag, value in ((b"\\x08", seconds), (b"\\x10", nanos)):
            duration += tag + varint.encode(value % 2**64)
        body = number_field(0x08, call.invocation_id) + number_field(0x10, number)
        body += bytes_field(0x1A, b"GET") + bytes_field(0x22, encode_text(url)) + bytes_field(0x3A, duration)
        sidecar._writer.write_request(call, plugin_requests.HTTP_REQUEST, body)

    sidecar._ask_http = raw
    try:
        return str(ctx.http.get(url).status)
    except HttpRefused as error:
        return f"{error.reason}: {error.message}"
    finally:
        del sidecar._ask_http


@plugin.tool(side_effects="external", requires=["proxy"])
def through_proxy(urls: list[str]) -> list[int]:
    """Asks as a program would that knows proxies alone."""
    said = []
    for url in urls:
        try:
            with urllib.request.urlopen(url, timeout=20) as response:
                said.append(response.status)
        except urllib.error.HTTPError as error:
            said.append(error.code)
    return said


@plugin.tool(side_effects="external", requires=["proxy"])
def connect(targets: list[str]) -> list[str]:
    """Asks for connections."""
    at = urlsplit(os.environ["https_proxy"])
    said = []
    for target in targets:
        with socket.create_connection((at.hostname, at.port), timeout=20) as connection:
            connection.sendall(f"CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n".encode())
            said.append(connection.recv(4096).decode().split(" ")[1])
    return said
'''


@dataclass
class Client(ToolClient):
    web: Web

    async def log(self) -> list[plugin_service_pb2.TailPluginLogsResponse]:
        """The plugin's log, as `fumehood plugin logs` shows it."""
        request = plugin_service_pb2.TailPluginLogsRequest(name="web", lines=1000)
        return [line async for line in self.plugins.TailPluginLogs(request, timeout=BOUND_S)]


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with serving() as web:
        yield web


@pytest.fixture(scope="module")
def sidecar(web: Web, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    plugin = write_plugin(tmp_path_factory.mktemp("web") / "web", "web", CODE)
    lines = [f'max_side_effects = "external"\nhosts = ["{web.host}", "127.0.0.1:1"]']
    lines += [f'[plugin.tools.{tool}]\npermission = "allow"' for tool in ("through_proxy", "connect")]
    egress = '[egress]\nallow_private = ["127.0.0.1"]\ntimeout_s = 20\n'
    with running_sidecar([(plugin, "\n".join(lines))], more=egress) as sidecar:
        yield sidecar


@pytest.fixture
async def client(sidecar: Sidecar, web: Web) -> AsyncIterator[Client]:
    web.requests.clear()
    async with sidecar.channel() as channel:
        yield Client(sidecar, channel, web)


@pytest.mark.parametrize("tool", ["ask", "ask_later"])
@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("timeout_s", "nan inf -inf true zero negative huge long digits word", "half ten most none"),
        ("max_bytes", "nan true negative huge half digits word", "ten none"),
        ("max_redirects", "nan true negative huge half digits word", "zero ten none"),
    ],
)
async def test_a_bound_that_is_none_is_refused_in_words_that_say_what_is_allowed(
    client: Client, tool: str, name: str, wrong: str, right: str
) -> None:
    for value in wrong.split():
        error = (await client.call(tool, url=f"{client.web.url}/missing", name=name, value=value)).error
        assert (error.code, json.loads(error.details_json)["reason"]) == ("TOOL_EXECUTION_FAILED", "bound_invalid")
        allowed = "more than 0 and at most 3600" if name == "timeout_s" else "a whole number from 0 to"
        assert error.message.startswith(f"{name} is ")
        assert allowed in error.message
    assert client.web.requests == []
    # Its body has 13 bytes: ten are enough for none of them.
    for value in right.split():
        result = await client.call(tool, url=f"{client.web.url}/missing", name=name, value=value)
        refused = (name, value) == ("max_bytes", "ten")
        assert result.is_error is refused, (value, result.error)
        assert not refused or json.loads(result.error.details_json)["reason"] == "response_too_large"


async def test_a_timeout_too_short_to_be_written_down_is_one_that_passes(client: Client) -> None:
    error = (await client.call("ask", url=f"{client.web.url}/hello", name="timeout_s", value="little")).error
    assert (json.loads(error.details_json)["reason"], error.retryable) == ("timeout", True)


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [(-1, 0), (0, 0), (0, -1), (3600, 1), (2**62, 0), (-(2**63), -(2**31)), (2**63 - 1, 2**31 - 1)],
)
async def test_the_sidecar_refuses_a_timeout_on_the_wire_that_is_none(client: Client, seconds: int, nanos: int) -> None:
    url = f"{client.web.url}/hello"
    said = await client.details("ask_by_the_wire", url=url, seconds=seconds, nanos=nanos)
    assert said.startswith("bound_invalid: the request's timeout is more than 0 and at most 3600 s, not ")
    assert client.web.requests == []
    assert await client.details("ask_by_the_wire", url=url, seconds=3600, nanos=0) == "200"
    assert await client.details("ask_by_the_wire", url=url, seconds=19, nanos=999_999_999) == "200"


async def test_the_plugins_log_says_what_its_relay_refused(client: Client) -> None:
    before = len(await client.log())
    port = client.web.port
    targets = ["other.example:443", "127.0.0.1:2", f"127.0.0.1:{port}", "127.1:443", "127.0.0.1:1"]
    assert await client.details("connect", targets=targets) == ["403", "403", "200", "403", "502"]
    urls = ["http://key:word@other.example/", "http://other.example/path?key=hunter2", f"{client.web.url}/hello"]
    result = await client.call("through_proxy", urls=urls)
    assert json.loads(result.details_json) == [403, 403, 200]
    lines = (await client.log())[before:]
    words = [line.message for line in lines if line.source == "sidecar" and "relay" in line.message]
    assert [each.partition(", ")[0] for each in words] == [
        "the relay refused CONNECT other.example port 443: host_not_granted",
        "the relay refused CONNECT 127.0.0.1 port 2: host_not_granted",
        "the relay refused CONNECT 127.1:443: host_invalid",
        "the relay failed CONNECT 127.0.0.1 port 1: connect_failed",
        "the relay refused GET http://…@other.example/: url_invalid",
        "the relay refused GET other.example port 80: host_not_granted",
    ]
    assert {line.call_id for line in lines if "GET" in line.message} == {result.call_id}
    assert not [each for each in words if "hunter2" in each or "word" in each or len(each) > 300]


async def test_a_program_that_asks_on_and_on_leaves_the_log_readable(client: Client) -> None:
    targets = [f"127.0.0.1:{port}" for port in range(2, 2 + 2 * RELAY_LINES_BURST)]
    before = len(await client.log())
    for _ in range(2):
        assert set(await client.details("connect", targets=targets)) == {"403"}
    shown = len(await client.log()) - before
    asked = 2 * len(targets)
    assert RELAY_LINES_BURST <= shown < asked
    async with asyncio.timeout(BOUND_S):
        while len(lines := await client.log()) == before + shown:
            assert await client.details("connect", targets=["127.0.0.1:2"]) == ["403"]
            asked += 1
    # What was left out is counted in the line after it.
    assert sum(1 + line.dropped for line in lines[before:]) == asked
    async with asyncio.timeout(BOUND_S):  # a thread of its own writes the sidecar's log
        while sum(each.get("event") == "egress" for each in client.sidecar.log()) < 2 * len(targets):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
