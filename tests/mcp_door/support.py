"""A plugin with every kind of answer, and MCP clients of the official SDK for Python."""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import CallToolResult, TextContent

from tests.sidecar import Sidecar

MODERN, LEGACY = "2026-07-28", "legacy"
MODES = [MODERN, LEGACY]
BOUND_S = 60.0

CODE = '''
import asyncio
from pathlib import Path
from typing import Annotated, TypedDict
from fumehood_sdk import Blob, Content, Context, Plugin, Text

plugin = Plugin("speech", version="1.0.0")


class Sum(TypedDict):
    total: int


@plugin.tool(side_effects="none", idempotent=True, isolation="process")
def say(text: str) -> str:
    """Says it again."""
    return text


@plugin.tool(side_effects="none", isolation="process")
def add(first: int, second: int) -> Sum:
    """Adds two numbers."""
    return {"total": first + second}


@plugin.tool(side_effects="none", isolation="process")
def show() -> Content:
    """Shows a block of each kind."""
    return Content(
        Text("words"),
        Blob(b"\\x89PNG", "image/png"),
        Blob(b"RIFF", "audio/wav"),
        Blob("größer".encode(), "text/csv"),
        Blob(b"\\x00\\x01", "application/x-thing"),
    )


@plugin.tool(side_effects="none", isolation="process")
async def count(to: int, ctx: Context) -> str:
    """Counts aloud."""
    for index in range(1, to + 1):
        ctx.update(f"at {index}", progress=index, total=to)
    ctx.update("no number")
    return f"counted to {to}"


@plugin.tool(side_effects="none", isolation="process")
async def wait(ctx: Context) -> str:
    """Says that it has begun, and waits for ever."""
    ctx.update("begun", progress=1, total=2)
    await asyncio.sleep(3600)
    return "waited"


@plugin.tool(side_effects="none", isolation="process")
def fail() -> str:
    """Fails."""
    raise ValueError("it broke")


@plugin.tool(side_effects="write", isolation="process")
def note(text: str) -> str:
    """Writes a note."""
    return f"noted {text}"
'''


def stdio(target: str, *arguments: str) -> StdioServerParameters:
    """`fumehood mcp` as a client of an mcp.json starts it."""
    return StdioServerParameters(
        command=sys.executable, args=["-P", "-m", "fumehood_server", "mcp", "--address", target, *arguments]
    )


@contextlib.asynccontextmanager
async def stdio_client(target: str, mode: str, *arguments: str, **options: Any) -> AsyncIterator[Client]:
    async with Client(stdio(target, *arguments), mode=mode, read_timeout_seconds=BOUND_S, **options) as client:
        yield client


def text_of(result: CallToolResult) -> str:
    """Its first block's text."""
    assert isinstance(result.content[0], TextContent), result
    return result.content[0].text


def error_of(result: CallToolResult) -> dict[str, Any]:
    """The typed error of a result that is one."""
    assert result.is_error, result
    assert result.structured_content is None, result
    assert result.meta is not None, result
    error: dict[str, Any] = result.meta["fumehood/error"]
    return error


async def names(client: Client) -> list[str]:
    """Every tool's name, over all pages."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        found += [each.name for each in page.tools]
        cursor = page.next_cursor
        if not cursor:
            return found


def url_of(sidecar: Sidecar) -> str:
    """The endpoint that the sidecar's log names."""
    url: str = sidecar.logged(event="mcp_listening")["url"]
    return url


@contextlib.asynccontextmanager
async def http_client(url: str, mode: str, token: str = "", **options: Any) -> AsyncIterator[Client]:
    """A client over Streamable HTTP, which shows the token."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        create_mcp_http_client(headers) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, read_timeout_seconds=BOUND_S, **options) as it,
    ):
        yield it


def request(
    url: str,
    method: str = "POST",
    body: dict[str, Any] | bytes | None = None,
    *,
    path: str = "",
    timeout_s: float = BOUND_S,
    **headers: str,
) -> tuple[int, dict[str, str], bytes]:
    """One HTTP request by nobody's SDK: status, headers in lower case, body."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=timeout_s)
    try:
        shown = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        shown |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        connection.request(method, path or parts.path, data, shown)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def modern(method: str, **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """A request of 2026-07-28 and the headers that go with it."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    meta |= params.pop("meta", {})
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    if "name" in params:
        headers["Mcp-Name"] = params["name"]
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}, headers


START = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
"""The first request of the handshake's era."""


def session(url: str, token: str) -> str:
    """The id of a session that was begun. Without a token nobody begins it."""
    shown = {"Authorization": f"Bearer {token}"} if token else {}
    status, headers, _ = request(url, body=START, **shown)
    assert status == 200
    found = headers["mcp-session-id"]
    status, _, _ = request(
        url, body={"jsonrpc": "2.0", "method": "notifications/initialized"}, **shown, Mcp_Session_Id=found
    )
    assert status == 202
    return found
