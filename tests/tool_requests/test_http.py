"""`ctx.http` and the relay, end to end: what a tool asks for, what goes out, what comes back."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from fumehood.v1 import plugin_service_pb2, tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_sandbox import authorities_runtime

from tests.rpc.support import BOUND_S, ToolClient, call
from tests.sidecar import Sidecar, running_sidecar, write_plugin

from .server import Web, serving

pytestmark = pytest.mark.promise("S810")

CODE = '''
import asyncio
import json
import os
import socket
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from fumehood_sdk import Context, HttpRefused, Plugin

plugin = Plugin("web", version="1.0.0")


def shown(response):
    return {"status": response.status, "text": response.text[:100], "size": len(response.content), "url": response.url,
            "redirects": response.redirects, "type": response.headers.get("content-type", "")}


@plugin.tool(side_effects="read", idempotent=True, isolation="process")
def ask(url: str, ctx: Context, method: str = "GET", max_bytes: int | None = None) -> dict[str, int | str]:
    """Asks."""
    return shown(ctx.http.request(method, url, max_bytes=max_bytes, headers={"x-word": "k\\u00e4se"}))


@plugin.tool(side_effects="read", idempotent=True, isolation="call")
def ask_alone(url: str, ctx: Context) -> dict[str, int | str]:
    """Asks in a process of its own."""
    return shown(ctx.http.get(url))


@plugin.tool(side_effects="read", idempotent=True, isolation="call")
async def ask_alone_later(url: str, ctx: Context) -> dict[str, int | str]:
    """The same on an event loop."""
    return shown(await ctx.http.aget(url))


@plugin.tool(side_effects="external", requires=["proxy"], isolation="call")
def alone_through_proxy(url: str) -> str:
    """Asks by the relay in a process of its own."""
    with urllib.request.urlopen(url, timeout=20) as response:
        return f"{response.status} {response.read().decode()}"


@plugin.tool(side_effects="read", idempotent=True, isolation="process")
async def ask_later(url: str, ctx: Context) -> dict[str, int | str]:
    """Asks from an event loop."""
    return shown(await ctx.http.aget(url))


@plugin.tool(side_effects="read", idempotent=True, isolation="process")
async def ask_wrongly(url: str, ctx: Context) -> str:
    """Holds up the event loop, or would."""
    return ctx.http.get(url).text


@plugin.tool(side_effects="write", isolation="process")
def ask_at_write(url: str, method: str, ctx: Context) -> dict[str, int | str]:
    """Asks at another level."""
    return shown(ctx.http.request(method, url))


@plugin.tool(side_effects="external", isolation="process")
def send(url: str, ctx: Context, method: str = "POST") -> dict[str, int | str]:
    """Sends."""
    return shown(ctx.http.request(method, url, json={"a": [1]}))


@plugin.tool(side_effects="none", isolation="process")
def ask_at_none(url: str, ctx: Context) -> str:
    """Asks where nothing may be asked."""
    try:
        return ctx.http.get(url).text
    except HttpRefused as error:
        return error.reason


@plugin.tool(side_effects="read", idempotent=True, isolation="process")
async def ask_nine_times(url: str, ctx: Context) -> list[str]:
    """Asks more often at a time than it may."""
    async def one() -> str:
        try:
            return str((await ctx.http.aget(url)).status)
        except Exception as error:
            return f"{type(error).__name__} {error.reason} {error.retryable}"

    asked = [asyncio.create_task(one()) for _ in range(8)]
    await asyncio.sleep(0)  # each of them asks before the last one does
    last = await one()
    return [last, *await asyncio.gather(*asked)]


@plugin.tool(side_effects="read", requires=["host:ungranted.example:443"], isolation="process")
def needs_more() -> str:
    """Requires a host that is not granted."""
    return "ran"


@plugin.tool(side_effects="external", requires=["proxy"], isolation="process")
def through_proxy(url: str) -> str:
    """Asks as a program would that knows proxies alone."""
    try:
        with urllib.request.urlopen(url, timeout=20) as response:
            return f"{response.status} {response.read().decode()}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.headers['Fumehood-Refusal']}"


@plugin.tool(side_effects="external", requires=["proxy"], isolation="process")
def through_tunnel(host: str, port: int) -> str:
    """Asks for a connection, and speaks over it."""
    at = urlsplit(os.environ["https_proxy"])
    with socket.create_connection((at.hostname, at.port), timeout=20) as connection:
        connection.sendall(f"CONNECT {host}:{port} HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n".encode())
        said = connection.recv(4096).decode()
        if " 200 " not in said:
            return said.split("\\r\\n")[0]
        connection.sendall(b"GET /hello HTTP/1.0\\r\\n\\r\\n")
        return connection.makefile().read().rpartition("\\r\\n")[2].splitlines()[-1]


@plugin.tool(side_effects="external", requires=["proxy"], isolation="process")
def around_proxy(host: str, port: int) -> str:
    """Dials by itself."""
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError as error:
        return type(error).__name__
    return "reached"


@plugin.tool(side_effects="external", requires=["proxy"], isolation="process")
def seen_behind_proxy(paths: list[str]) -> str:
    """Looks for files."""
    return json.dumps([each for each in paths if os.path.exists(each)])


@plugin.tool(side_effects="external", isolation="process")
def seen_without_proxy(paths: list[str]) -> str:
    """Looks for files."""
    return json.dumps([each for each in paths if os.path.exists(each)])


@plugin.tool(side_effects="external", isolation="process")
def without_proxy() -> str:
    """Tries to make a socket."""
    try:
        socket.socket().close()
    except OSError as error:
        return type(error).__name__
    return "made"
'''
EXTERNAL = (
    *("send", "ask_at_write", "without_proxy", "seen_behind_proxy", "seen_without_proxy"),
    *("through_proxy", "alone_through_proxy", "through_tunnel", "around_proxy"),
)


@dataclass
class Client(ToolClient):
    """The sidecar with the plugin, and the server that it may reach."""

    web: Web


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with serving() as web:
        yield web


@pytest.fixture(scope="module")
def sidecar(web: Web, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    plugin = write_plugin(tmp_path_factory.mktemp("web") / "web", "web", CODE)
    lines = [f'max_side_effects = "external"\nhosts = ["{web.host}", "closed.example:1"]\ndeny_hosts = ["127.0.0.9"]']
    lines += [f'[plugin.tools.{tool}]\npermission = "allow"' for tool in EXTERNAL]
    egress = '[egress]\nallow_private = ["127.0.0.1"]\nmax_response_bytes = 50000\ntimeout_s = 20\n'
    with running_sidecar([(plugin, "\n".join(lines))], more=egress) as sidecar:
        yield sidecar


@pytest.fixture
async def client(sidecar: Sidecar, web: Web) -> AsyncIterator[Client]:
    web.requests.clear()
    async with sidecar.channel() as channel:
        yield Client(sidecar, channel, web)


async def test_a_granted_host_is_asked_by_sync_and_async_tools(client: Client) -> None:
    expected = {
        "status": 200,
        "text": '{"hello": "wörld"}',
        "size": 19,
        "url": f"{client.web.url}/hello?a=1",
        "redirects": 0,
        "type": "application/json; charset=utf-8",
    }
    assert await client.details("ask", url=f"{client.web.url}/hello?a=1") == expected
    assert await client.details("ask_later", url=f"{client.web.url}/hello?a=1") == expected
    method, path, headers, _ = client.web.requests[0]
    assert (method, path, headers["host"]) == ("GET", "/hello?a=1", client.web.host)
    assert headers["x-word"] == "k\u00e4se"
    assert (await client.details("ask", url=f"{client.web.url}/missing"))["status"] == 404
    assert (await client.details("ask", url=f"{client.web.url}/x", method="HEAD"))["size"] == 0


async def test_a_call_in_a_process_of_its_own_asks_as_well(client: Client) -> None:
    for tool in ("ask_alone", "ask_alone_later"):
        result = await client.call(tool, url=f"{client.web.url}/hello")
        assert json.loads(result.details_json)["text"] == '{"hello": "wörld"}', result.error
        assert result.usage.egress_received_bytes > 100
    assert await client.details("alone_through_proxy", url=f"{client.web.url}/hello") == '200 {"hello": "wörld"}'


async def test_a_redirect_is_followed_to_what_is_granted_and_not_elsewhere(client: Client) -> None:
    found = await client.details("ask", url=f"{client.web.url}/redirect")
    assert (found["url"], found["redirects"]) == (f"{client.web.url}/hello", 1)
    assert await client.refusal("ask", url=f"{client.web.url}/elsewhere") == ("host_not_granted", False)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:1/", "host_not_granted"),
        ("http://other.example/", "host_not_granted"),
        ("http://127.0.0.9/", "host_denied"),
        ("http://localhost/", "host_reserved"),
        ("http://127.1/", "host_invalid"),
        ("ftp://127.0.0.1/", "scheme_not_allowed"),
        ("nonsense", "url_invalid"),
    ],
)
async def test_what_is_not_granted_is_refused_in_words_and_never_asked(client: Client, url: str, reason: str) -> None:
    assert await client.refusal("ask", url=url) == (reason, False)
    assert client.web.requests == []


async def test_a_name_that_nobody_knows_may_be_asked_again_later(client: Client) -> None:
    assert await client.refusal("ask", url="http://closed.example:1/") == ("name_not_resolved", True)


async def test_methods_go_by_the_level(client: Client) -> None:
    url = f"{client.web.url}/hello"
    for tool in ("ask", "ask_at_write"):
        assert (await client.details(tool, url=url, method="GET"))["status"] == 200
        assert await client.refusal(tool, url=url, method="POST") == ("method_not_allowed", False)
    assert [method for method, *_ in client.web.requests] == ["GET", "GET"]
    assert (await client.details("send", url=url))["status"] == 200
    assert (await client.details("send", url=url, method="DELETE"))["status"] == 200
    method, _, headers, body = client.web.requests[2]
    assert (method, headers["content-type"], body) == ("POST", "application/json", b'{"a":[1]}')
    assert await client.details("ask_at_none", url=url) == "method_not_allowed"


async def test_the_operators_bounds_hold_and_a_tool_can_lower_them(client: Client) -> None:
    url = f"{client.web.url}/large"
    assert await client.refusal("ask", url=url) == ("response_too_large", False)
    assert await client.refusal("ask", url=url, max_bytes=1_000_000_000) == ("response_too_large", False)
    assert await client.refusal("ask", url=f"{client.web.url}/hello", max_bytes=5) == ("response_too_large", False)
    assert (await client.details("ask", url=f"{client.web.url}/hello", max_bytes=19))["size"] == 19


async def test_a_ninth_request_at_a_time_is_refused_and_may_be_made_again(client: Client) -> None:
    url = f"{client.web.url}/hold"
    client.web.let_go.clear()
    asked = asyncio.create_task(client.details("ask_nine_times", url=url))
    for _ in range(8):
        assert await asyncio.to_thread(client.web.held.acquire, timeout=BOUND_S)
    client.web.let_go.set()
    assert await asked == ["HttpFailed too_many_requests True", *["200"] * 8]


async def test_a_cancelled_call_takes_its_request_with_it(client: Client) -> None:
    client.web.let_go.clear()
    async with asyncio.timeout(BOUND_S):
        for number in itertools.count():  # a process that has no processor for a second is ended: then once more
            call_id = f"to-be-cancelled-{number}"
            running = client.tools.CallTool(call("ask", {"url": f"{client.web.url}/hold"}, call_id=call_id))
            assert await asyncio.to_thread(client.web.held.acquire, timeout=BOUND_S)
            await client.tools.CancelCall(pb.CancelCallRequest(call_id=call_id))
            result = (await running).result
            assert result.error.code == "CANCELLED_SIGNAL"
            (event,) = await events(client, call_id)
            assert (event["outcome"], event["method"]) == ("cancelled", "GET")
            if json.loads(result.error.details_json)["ended_by"] == "cancel_frame":
                break
    client.web.let_go.set()
    assert (await client.details("ask", url=f"{client.web.url}/hello"))["status"] == 200


async def test_an_event_loop_is_not_held_up(client: Client) -> None:
    error = (await client.call("ask_wrongly", url=f"{client.web.url}/hello")).error
    assert "await the form whose name begins with a" in error.message


async def test_bytes_are_counted_and_every_request_leaves_an_event_without_its_query(client: Client) -> None:
    answer = await client.tools.CallTool(call("ask", {"url": f"{client.web.url}/hello?key=s3cr3t"}, call_id="counted"))
    usage = answer.result.usage
    assert usage.egress_sent_bytes > 60
    assert usage.egress_received_bytes > 100
    refused = await client.tools.CallTool(call("ask", {"url": "http://other.example/?key=s3cr3t"}, call_id="refused"))
    assert refused.result.usage.egress_sent_bytes == 0
    (event,) = await events(client, "counted")
    assert (event["plugin"], event["tool"], event["outcome"]) == ("web", "ask", "done")
    assert (event["bytes_sent"], event["bytes_received"]) == (usage.egress_sent_bytes, usage.egress_received_bytes)
    (other,) = await events(client, "refused")
    assert (other["outcome"], other["reason"]) == ("refused", "host_not_granted")
    assert "s3cr3t" not in client.sidecar.stderr()


async def test_grants_are_shown_and_what_is_missing_is_told(client: Client) -> None:
    reply = await client.tools.GetTool(pb.GetToolRequest(name="needs_more"))
    (reason,) = reply.tool.availability.reasons
    assert (reason.code, reason.remedy) == ("host_not_granted", 'hosts = ["ungranted.example:443"] in its [[plugin]]')
    assert (await client.call("needs_more")).error.code == "TOOL_UNAVAILABLE"
    shown = (await client.plugins.GetPlugin(plugin_service_pb2.GetPluginRequest(name="web"))).plugin
    hosts = {tuple(sandbox.hosts) for sandbox in shown.sandboxes if sandbox.side_effects > tool_pb2.SIDE_EFFECTS_NONE}
    assert hosts == {(client.web.host, "closed.example:1", "not 127.0.0.9:*")}
    (none,) = (each for each in shown.sandboxes if each.side_effects == tool_pb2.SIDE_EFFECTS_NONE)
    assert list(none.hosts) == []


async def test_programs_that_know_proxies_alone_go_through_the_relay_by_the_same_rules(client: Client) -> None:
    assert await client.details("through_proxy", url=f"{client.web.url}/hello") == '200 {"hello": "wörld"}'
    assert await client.details("through_proxy", url="http://other.example/") == "403 host_not_granted"
    assert [path for _, path, *_ in client.web.requests] == ["/hello"]
    assert (await client.call("through_proxy", url=f"{client.web.url}/hello")).usage.egress_received_bytes > 100
    assert await client.details("around_proxy", host="127.0.0.1", port=client.web.port) != "reached"
    assert await client.details("without_proxy") == "PermissionError"
    assert len(client.web.requests) == 2


async def test_programs_behind_a_relay_see_the_authorities_that_tls_is_verified_by(client: Client) -> None:
    wanted = [mount.target for mount in authorities_runtime()]
    if not wanted:
        pytest.skip("this machine has no certificate authorities")
    assert json.loads(await client.details("seen_behind_proxy", paths=[*wanted, "/etc/ssl/private"])) == wanted
    assert json.loads(await client.details("seen_without_proxy", paths=wanted)) == []


async def test_a_tunnel_leads_to_granted_hosts_and_ports_alone(client: Client) -> None:
    assert await client.details("through_tunnel", host="127.0.0.1", port=client.web.port) == '{"hello": "wörld"}'
    for host, port in (("127.0.0.1", 1), ("other.example", 443), ("127.0.0.9", client.web.port)):
        assert (await client.details("through_tunnel", host=host, port=port)).startswith("HTTP/1.1 403")
    assert len(client.web.requests) == 1


async def events(client: Client, call_id: str) -> list[dict[str, Any]]:
    """The events of a call, once there is one."""
    async with asyncio.timeout(BOUND_S):
        while not (found := [each for each in client.sidecar.log() if _is_event(each, call_id)]):
            await client.tools.GetTool(pb.GetToolRequest(name="ask"))
    return found


def _is_event(line: dict[str, Any], call_id: str) -> bool:
    return line.get("event") == "egress" and line.get("call_id") == call_id
