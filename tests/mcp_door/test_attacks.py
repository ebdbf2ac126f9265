"""Whoever can connect, or holds a token, with requests of hostile form, size and pace: each beside an honest one."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.callers.support import token_of
from tests.sidecar import Sidecar, running_sidecar

from .support import BOUND_S, MODERN, modern, request, session, url_of

CALLERS = """
[mcp]
listen = "127.0.0.1:0"
max_requests = 8
[[caller]]
name = "writer"
tools = ["*"]
[[caller]]
name = "reader"
tools = ["say"]
"""
LIST, LIST_HEADERS = modern("tools/list")
BODY = json.dumps(LIST).encode()
ENOUGH_BYTES = 32 * 1024 * 1024
"""Whoever may send as much beside a body may send without end."""


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


def head(*lines: str, token: str = "", first: str = "POST /mcp HTTP/1.1", without: str = "") -> bytes:
    """A request's head, with `lines` at its end."""
    shown = {"Host": "localhost", "Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    shown |= LIST_HEADERS | ({"Authorization": f"Bearer {token}"} if token else {})
    shown.pop(without, None)
    return "\r\n".join([first, *(f"{name}: {value}" for name, value in shown.items()), *lines, "", ""]).encode()


@contextlib.contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=BOUND_S) as connection:
        yield connection


def statuses(url: str, data: bytes) -> list[int]:
    """The status of each answer until the connection ends, which the data's last request is to ask for."""
    with connected(url) as connection:
        answer = b""
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
            while more := connection.recv(65536):
                answer += more
    return [int(each[:3]) for each in answer.split(b"HTTP/1.1 ")[1:]]


LENGTH = f"Content-Length: {len(BODY)}"
CHUNKS = b"%x\r\n%s\r\n0\r\n" % (len(BODY), BODY)
CLOSE = "Connection: close"


def test_a_request_is_one_request_of_who_its_head_says(url: str, token: str) -> None:
    chunked = ("Transfer-Encoding: chunked", CLOSE)
    mine = head(LENGTH, CLOSE, token=token) + BODY
    upgrade = head(LENGTH, "Connection: Upgrade", "Upgrade: h2c", token=token)
    sent = {
        "as it should be": mine,
        "in chunks": head(*chunked, token=token) + CHUNKS + b"\r\n",
        "a trailer": head(*chunked, token=token) + CHUNKS + b"Digest: x\r\n\r\n",
        "a token in a trailer": head(*chunked) + CHUNKS + b"Authorization: Bearer %s\r\n\r\n" % token.encode(),
        "a routing header in a trailer": head(*chunked, token=token, without="Mcp-Method")
        + CHUNKS
        + b"Mcp-Method: tools/list\r\n\r\n",
        "two lengths": head(LENGTH, "Content-Length: 3", CLOSE, token=token) + BODY,
        "a length and chunks": head(LENGTH, *chunked, token=token) + b"0\r\n\r\n" + mine,
        "two tokens": head(LENGTH, "Authorization: Bearer x", CLOSE, token=token) + BODY,
        "two sessions": head(LENGTH, "Mcp-Session-Id: a", "mcp-session-id: b", CLOSE, token=token) + BODY,
        "two revisions": head(LENGTH, "MCP-Protocol-Version: 2025-11-25", CLOSE, token=token) + BODY,
        "another host in the URL": head(LENGTH, CLOSE, token=token, first="POST http://evil.example/mcp HTTP/1.1")
        + BODY,
        "a path that is written otherwise": head(LENGTH, CLOSE, token=token, first="POST /%6dcp HTTP/1.1") + BODY,
        "another protocol, whose bytes would be a request": upgrade + mine,
        "a thousand headers": head(LENGTH, CLOSE, *(f"x{index}:" for index in range(1000)), token=token) + BODY,
        "a host that ends a quotation": head(LENGTH, CLOSE, token=token).replace(b"localhost", b'localhost"') + BODY,
    }
    assert {name: statuses(url, data) for name, data in sent.items()} == {
        "as it should be": [200],
        "in chunks": [200],
        "a trailer": [200],
        "a token in a trailer": [401],
        "a routing header in a trailer": [400],
        "two lengths": [400],
        "a length and chunks": [400],
        "two tokens": [400],
        "two sessions": [400],
        "two revisions": [400],
        "another host in the URL": [400],
        "a path that is written otherwise": [404],
        "another protocol, whose bytes would be a request": [400],
        "a thousand headers": [400],
        "a host that ends a quotation": [421],
    }


def begin_waiting(connection: socket.socket, token: str) -> None:
    """Send a request that is not answered to its end, and read the beginning of its answer."""
    meta: dict[str, Any] = {"progressToken": 1}
    body, headers = modern("tools/call", name="wait", arguments={}, meta=meta)
    data = json.dumps(body).encode()
    lines = [f"Content-Length: {len(data)}", *(f"{name}: {value}" for name, value in headers.items())]
    without = head(token=token).decode().split("\r\n")[:-2]
    kept = [each for each in without if each.partition(":")[0] not in headers]
    connection.sendall("\r\n".join([*kept, *lines, "", ""]).encode() + data)
    _read_until_begun(connection)


def _read_until_begun(connection: socket.socket) -> None:
    answer = b""
    while b"begun" not in answer:
        more = connection.recv(65536)
        assert more, answer
        answer += more


def flood(connection: socket.socket, piece: bytes) -> None:
    """Send more than anybody is to take."""
    for _ in range(ENOUGH_BYTES // len(piece)):
        connection.sendall(piece)


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        ("a head", b"X: " + b"x" * 8192 + b"\r\n"),
        ("a URL", b"x" * 8192),
        ("trailers", b"X: " + b"x" * 8192 + b"\r\n"),
        ("one trailer", b"x" * 8192),
        ("a chunk's extension", b"x" * 8192),
        ("requests before the first is answered", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100),
        ("a head before the first is answered", b"X: " + b"x" * 8192 + b"\r\n"),
        ("line ends before the first is answered", b"\r\n" * 4096),
    ],
)
def test_what_never_ends_is_cut(url: str, token: str, start: str, piece: bytes) -> None:
    chunked = head("Transfer-Encoding: chunked", token=token)
    starts = {
        "a head": b"GET / HTTP/1.1\r\n",
        "a URL": b"GET /",
        "trailers": chunked + CHUNKS,
        "one trailer": chunked + CHUNKS + b"X: ",
        "a chunk's extension": chunked + b"1;",
        "a head before the first is answered": b"GET / HTTP/1.1\r\n",
    }
    with connected(url) as connection:
        if start.endswith("answered"):
            begin_waiting(connection, token)
        connection.sendall(starts.get(start, b""))
        with pytest.raises(ConnectionError):
            flood(connection, piece)
    assert request(url, body=LIST, Authorization=f"Bearer {token}", **LIST_HEADERS)[0] == 200


def test_an_early_answer_reaches_a_client_that_goes_on_sending(url: str, token: str) -> None:
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    with connected(url) as connection:
        connection.sendall(head("Transfer-Encoding: chunked"))
        assert connection.recv(12) == b"HTTP/1.1 401"
        for _ in range(64):
            connection.sendall(piece)
        connection.sendall(b"0\r\n\r\n" + head(LENGTH, CLOSE, token=token) + BODY)
        answers = b""
        while more := connection.recv(65536):
            answers += more
        assert b"HTTP/1.1 200" in answers  # on the same connection


def _nested(depth: int) -> str:
    return '{"text":' + "[" * depth + "]" * depth + "}"


HOSTILE = {
    "deep": _nested(500_000),
    "somewhat deep": _nested(900),
    "a number of 5,000 digits": '{"text":' + "9" * 5000 + "}",
    "not a number": '{"text":NaN}',
    "infinite": '{"text":1e999}',
    "half a surrogate pair": '{"text":"\\ud800"}',
    "a key that is half a pair": '{"\\ud800":1,"text":"x"}',
    "a megabyte of keys": '{"text":"x",' + ",".join(f'"key{index}":1' for index in range(90_000)) + "}",
    "a list": "[1]",
}
WHOLE = {
    "a batch": b"[%s]" % BODY,
    "an empty batch": b"[]",
    "half a million numbers": b"[" + b"1," * 500_000 + b"1]",
    "nothing": b"",
    "no UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
    "an answer to nothing": b'{"jsonrpc":"2.0","id":99,"result":{}}',
    "keys beside a method that is none": b'{"id":1,"method":5'
    + b"".join(b',"k%d":[]' % n for n in range(80_000))
    + b"}",
}


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
def test_hostile_json_is_answered_with_a_typed_refusal_and_honest_json_goes_on(
    url: str, token: str, revision: str
) -> None:
    mine = {"Authorization": f"Bearer {token}"}
    call, headers = modern("tools/call", name="say", arguments={})
    meta = json.dumps(call["params"]["_meta"])
    if revision == "2025-11-25":
        headers = {"Mcp-Session-Id": session(url, token), "MCP-Protocol-Version": revision}

    def sent(arguments: str = '{"text":"x"}', name: str = "say", more: str = "", call_id: str = "1") -> bytes:
        shown = headers | ({"Mcp-Name": name} if "Mcp-Name" in headers else {})
        params = f'{{"name":"{name}","arguments":{arguments},"_meta":{meta[:-1]}{more}}}}}'
        body = f'{{"jsonrpc":"2.0","id":{call_id},"method":"tools/call","params":{params}}}'
        status, _, answer = request(url, body=body.encode(), **mine, **shown)
        assert status in {200, 400}
        return answer.partition(b"data: ")[2].strip() or answer

    def outcome(answer: bytes) -> str:
        def never(constant: str) -> None:
            raise AssertionError(constant)

        found = json.loads(answer, parse_constant=never)
        if "error" in found:
            return "a bug of ours" if found["error"]["code"] == -32603 else "refused"
        return "failed" if found["result"]["isError"] else "said"

    outcomes = {name: outcome(sent(arguments)) for name, arguments in HOSTILE.items()}
    outcomes["a name that is half a pair"] = outcome(sent(name="\\ud800"))
    outcomes["an id that is half a pair"] = outcome(sent(more=',"fumehood/callId":"\\ud800"'))
    outcomes["an id of 100,000 characters"] = outcome(sent(more=f',"fumehood/callId":"{"x" * 100_000}"'))
    outcomes["a progress token of a megabyte"] = outcome(sent(more=f',"progressToken":"{"x" * 1_000_000}"'))
    assert outcome(sent()) == "said"
    assert {name for name, each in outcomes.items() if each == "said"} == {"a progress token of a megabyte"}
    assert "a bug of ours" not in outcomes.values(), outcomes
    for name, body in WHOLE.items():
        status, _, _ = request(url, body=body, **mine, **headers)
        assert status == (202 if (name, revision) == ("an answer to nothing", "2025-11-25") else 400), name
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert request(url, body=BODY, **mine, **{**LIST_HEADERS, **headers, "Content-Type": content_type})[0] == 400
    assert outcome(sent()) == "said"


def test_calls_that_outlive_their_connections_are_counted_and_others_go_on(
    sidecar: Sidecar, url: str, token: str
) -> None:
    mine = {"Mcp-Session-Id": session(url, token), "MCP-Protocol-Version": "2025-11-25"}
    for index in range(6):  # three quarters of eight
        _begin_and_leave(url, token, mine, index)
    refused = _say(url, token, mine)
    assert (refused["error"]["code"], refused["error"]["data"]["code"]) == (-32000, "TOO_MANY_REQUESTS")
    reader = token_of(sidecar.folder, "reader")
    theirs = {"Mcp-Session-Id": session(url, reader), "MCP-Protocol-Version": "2025-11-25"}
    for index in range(6):  # nobody's cancellation but the session's own counts
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": index}}
        assert request(url, body=cancelled, Authorization=f"Bearer {reader}", **theirs)[0] == 202
        assert request(url, body=cancelled, Authorization=f"Bearer {reader}", **mine)[0] == 404
    assert _say(url, reader, theirs)["result"]["isError"] is False
    assert "error" in _say(url, token, mine)
    for index in range(6):
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": index}}
        assert request(url, body=cancelled, Authorization=f"Bearer {token}", **mine)[0] == 202
    while "error" in _say(url, token, mine):  # until the cancelled calls have ended
        pass


def _begin_and_leave(url: str, token: str, shown: dict[str, str], call_id: int) -> None:
    params = {"name": "wait", "arguments": {}, "_meta": {"progressToken": call_id}}
    body = json.dumps({"jsonrpc": "2.0", "id": call_id, "method": "tools/call", "params": params}).encode()
    lines = [f"Content-Length: {len(body)}", *(f"{name}: {value}" for name, value in shown.items())]
    without = head(token=token).decode().split("\r\n")[:-2]
    kept = [each for each in without if not each.lower().startswith("mcp-")]
    with connected(url) as connection:
        connection.sendall("\r\n".join([*kept, *lines, "", ""]).encode() + body)
        _read_until_begun(connection)


def _say(url: str, token: str, shown: dict[str, str]) -> dict[str, Any]:
    params = {"name": "say", "arguments": {"text": "x"}}
    body = {"jsonrpc": "2.0", "id": 100, "method": "tools/call", "params": params}
    status, _, answer = request(url, body=body, Authorization=f"Bearer {token}", **shown)
    assert status == 200
    found: dict[str, Any] = json.loads(answer.partition(b"data: ")[2])
    return found


def test_rude_clients_leave_no_line_in_the_log(plugin_folder: Path) -> None:
    with running_sidecar([plugin_folder], more=CALLERS) as sidecar:
        sidecar.logged(event="mcp_serving")
        url, token = url_of(sidecar), token_of(sidecar.folder, "writer")
        for data in (b"\x16\x03\x01 nonsense\r\n\r\n", head("Upgrade: websocket", "Connection: Upgrade", token=token)):
            assert statuses(url, data) == [400]
        for cut in (
            head("Content-Length: 10", token=token).replace(MODERN.encode(), revision) + b"{"
            for revision in (MODERN.encode(), b"2025-11-25")
        ):
            with connected(url) as connection:
                connection.sendall(cut)
            with connected(url) as connection:
                connection.sendall(cut)
                connection.shutdown(socket.SHUT_WR)
        assert request(url, body=BODY, Authorization=f"Bearer {token}", Mcp_Session_Id="no")[0] == 404
        assert request(url, body=LIST, Authorization=f"Bearer {token}", **LIST_HEADERS)[0] == 200
        sidecar.signal()
        assert sidecar.wait() == 0
        assert [line for line in sidecar.log() if line["event"] == "library_log"] == []
