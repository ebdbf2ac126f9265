"""Streamable HTTP: who may call, by what name, from which pages, and within what bounds."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from mcp.shared.exceptions import MCPError

from tests.callers.support import revoke, token_of
from tests.sidecar import Sidecar, running_sidecar

from .support import (
    BOUND_S,
    MODERN,
    MODES,
    START,
    error_of,
    http_client,
    modern,
    names,
    request,
    session,
    text_of,
    url_of,
)

CALLERS = """
[mcp]
listen = "127.0.0.1:0"
allowed_origins = ["https://app.example.com"]
max_sessions = 4
max_requests = 8
[[caller]]
name = "reader"
tools = ["s*y"]
list_only = ["add"]
[[caller]]
name = "writer"
tools = ["*"]
"""


@pytest.fixture(scope="module")
def sidecar(plugin_folder: Path) -> Iterator[Sidecar]:
    with running_sidecar([(plugin_folder, 'max_side_effects = "write"')], more=CALLERS) as running:
        running.logged(event="mcp_serving")
        yield running


@pytest.fixture(scope="module")
def url(sidecar: Sidecar) -> str:
    return url_of(sidecar)


@pytest.fixture(scope="module")
def token(sidecar: Sidecar) -> str:
    return token_of(sidecar.folder, "writer")


@pytest.mark.parametrize("mode", MODES)
async def test_each_client_is_the_caller_of_its_own_token(sidecar: Sidecar, url: str, token: str, mode: str) -> None:
    reader = token_of(sidecar.folder, "reader")
    async with http_client(url, mode, token) as one, http_client(url, mode, reader) as other:
        assert "note" in await names(one)
        assert await names(other) == ["say"]  # and not `add`, which it may only list
        assert text_of(await one.call_tool("say", {"text": "one"})) == "one"
        assert text_of(await other.call_tool("say", {"text": "other"})) == "other"
        assert error_of(await other.call_tool("add", {"first": 1, "second": 2}))["code"] == "TOOL_DENIED"


async def test_a_token_that_is_taken_back_ends_its_client(sidecar: Sidecar, url: str) -> None:
    passing = token_of(sidecar.folder, "writer")
    async with http_client(url, MODERN, passing) as client:
        assert text_of(await client.call_tool("say", {"text": "x"})) == "x"
        revoke(sidecar.folder, passing)
        with pytest.raises(MCPError):  # by the call itself: nothing waits until the check's own memory has ended
            await client.call_tool("say", {"text": "x"})


def test_without_a_known_token_it_says_where_to_learn_more(url: str, token: str) -> None:
    body, headers = modern("tools/list")
    status, shown, _ = request(url, body=body, **headers)
    origin = url.removesuffix("/mcp")
    where = f'resource_metadata="{origin}/.well-known/oauth-protected-resource/mcp"'
    assert (status, shown["www-authenticate"]) == (401, f"Bearer {where}")
    status, shown, _ = request(url, body=body, Authorization="Bearer nonsense", **headers)
    assert (status, 'error="invalid_token"' in shown["www-authenticate"]) == (401, True)
    status, _, _ = request(url, body=body, Authorization=f"Basic {token}", **headers)
    assert status == 400
    for path in ("/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"):
        status, _, text = request(url, "GET", path=path)
        assert status == 200
        about = {"resource": url, "resource_name": "Fumehood", "bearer_methods_supported": ["header"]}
        assert json.loads(text) == about  # RFC 9728, 3.2: a list without anything is left out
    assert request(url, body=body, Authorization=f"Bearer {token}", **headers)[0] == 200


def test_another_name_or_origin_is_refused(url: str, token: str) -> None:
    body, headers = modern("tools/list")
    headers["Authorization"] = f"Bearer {token}"
    port = urlsplit(url).port
    statuses = {
        name: request(url, body=body, **headers, Host=name)[0]
        for name in (
            f"localhost:{port}",
            "127.0.0.1",
            "[::1]:1",
            "evil.example",
            "localhost.evil.example",
            "localhost@x",
        )
    }
    assert statuses == {
        f"localhost:{port}": 200, "127.0.0.1": 200, "[::1]:1": 200,
        "evil.example": 421, "localhost.evil.example": 421, "localhost@x": 421,
    }  # fmt: skip
    origins = {
        origin: request(url, body=body, **headers, Origin=origin)[0]
        for origin in ("https://app.example.com", "https://app.example.com.evil", f"http://localhost:{port}", "null")
    }
    assert list(origins.values()) == [200, 403, 403, 403]
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    status, shown, _ = request(url, "OPTIONS", Origin="https://app.example.com", **asked)
    assert (status, shown["access-control-allow-origin"]) == (200, "https://app.example.com")
    assert request(url, "OPTIONS", Origin="https://evil.example", **asked)[0] == 403


def test_a_session_is_its_own_tokens_and_one_caller_leaves_others_some(sidecar: Sidecar, url: str, token: str) -> None:
    mine = {"Authorization": f"Bearer {token}"}
    other = {"Authorization": f"Bearer {token_of(sidecar.folder, 'reader')}"}
    sessions = [session(url, token) for _ in range(3)]  # three quarters of four
    assert request(url, body=START, **mine)[0] == 503
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    first = {"Mcp-Session-Id": sessions[0], "MCP-Protocol-Version": "2025-11-25"}
    assert request(url, body=ping, **mine, **first)[0] == 200
    status, _, guessed = request(url, body=ping, **other, **{**first, "Mcp-Session-Id": "0" * 32})
    assert (status, request(url, body=ping, **other, **first)[::2]) == (404, (404, guessed))  # as if there were none
    status, shown, _ = request(url, body=START, **other)
    assert status == 200
    assert request(url, body=START, **other)[0] == 503  # all four are taken
    assert request(url, "DELETE", **other, Mcp_Session_Id=shown["mcp-session-id"])[0] == 200
    for each in sessions:
        assert request(url, "DELETE", **mine, Mcp_Session_Id=each)[0] == 200
    assert request(url, body=ping, **mine, **first)[0] == 404


def test_large_bodies_and_heads_are_refused(url: str, token: str) -> None:
    mine = {"Authorization": f"Bearer {token}"}
    body, headers = modern("tools/call", name="say", arguments={"text": "x" * 400_000})
    status, _, answer = request(url, body=body, **mine, **headers)
    assert (status, len(json.loads(answer)["result"]["content"][0]["text"])) == (200, 400_000)
    assert request(url, body=b" " * (3 * 1024 * 1024), **mine, **headers)[0] == 413
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=BOUND_S) as connection:
        connection.sendall(b"POST /mcp HTTP/1.1\r\n")
        with pytest.raises(OSError):  # noqa: PT011 - reset or broken pipe, as the kernel has it
            connection.sendall((b"X-Much: " + b"x" * 8192 + b"\r\n") * 4096)
    assert request(url, body=modern("tools/list")[0], **mine, **modern("tools/list")[1])[0] == 200


async def test_one_caller_leaves_others_room(sidecar: Sidecar, url: str, token: str) -> None:
    async def waiting(client: Any) -> None:
        await client.call_tool("wait", {}, progress_callback=begun)

    count, all_begun = 0, asyncio.Event()

    async def begun(*_: object) -> None:
        nonlocal count
        count += 1
        if count == 6:
            all_begun.set()

    async with http_client(url, MODERN, token) as client:
        tasks = [asyncio.create_task(waiting(client)) for _ in range(6)]  # three quarters of eight
        await all_begun.wait()
        body, headers = modern("tools/list")
        assert (await asyncio.to_thread(request, url, "POST", body, Authorization=f"Bearer {token}", **headers))[
            0
        ] == 503
        reader = token_of(sidecar.folder, "reader")
        answer = await asyncio.to_thread(request, url, "POST", body, Authorization=f"Bearer {reader}", **headers)
        assert answer[0] == 200
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_what_comes_while_its_process_is_started_anew_waits(sidecar: Sidecar, url: str, token: str) -> None:
    pid = max(line["pid"] for line in sidecar.log() if line.get("event") == "mcp_serving")
    assert psutil.Process(pid).ppid() == sidecar.process.pid
    os.kill(pid, signal.SIGKILL)
    body, headers = modern("tools/list")
    while True:
        try:
            answer = request(url, body=body, Authorization=f"Bearer {token}", **headers)
            break
        except (ConnectionError, OSError):  # what its accepted connections had
            continue
    assert answer[0] == 200
    sidecar.logged(event="mcp_ended", status=-signal.SIGKILL)
