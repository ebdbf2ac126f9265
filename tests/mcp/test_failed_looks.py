"""A server that doesn't list its tools when it is asked anew: its calls go on, up to a bound."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fumehood.v1 import plugin_pb2 as pb
from fumehood.v1 import tool_pb2
from fumehood_sdk.adapters.mcp import relisting

from tests.mcp.direct import DirectEngine, direct_engine, remote_engine

BOUND_S = 60.0
SILENCE_S = 0.5
ANEW = "doesn't list its tools anew"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, number = message["method"], message.get("id")
        if number is None:
            self.reply(202, b"")
        elif method == "initialize":
            self.result(number, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}})
        elif method == "tools/list":
            self.list_tools(number)
        elif method == "tools/call":
            name = message["params"]["name"]
            if name == "waits":
                self.server.has_begun.set()
                self.server.may_end.wait(BOUND_S)
            self.result(number, {"content": [{"type": "text", "text": name}]})
        else:
            self.reply(400, b"")

    def list_tools(self, number: int) -> None:
        how = self.server.lists
        if how == "refused":
            self.reply(503, b"later")
        elif how == "silent":
            assert not self.connection.recv(1), "nobody waits any more"
            self.close_connection = True
            self.server.given_up.set()
        else:
            words = {"waits": "Waits.", "echo": how}
            self.result(number, {"tools": [{"name": name, "description": words[name]} for name in words]})

    def result(self, number: int, result: dict[str, Any]) -> None:
        self.reply(200, json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode())

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


class Server(http.server.ThreadingHTTPServer):
    """A server of 2025-11-25, with one tool that answers at once and one that waits for the test."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lists = "As pinned."
        """What it does when it is asked for its tools: "refused", "silent", or a list with this description."""
        self.has_begun, self.may_end, self.given_up = threading.Event(), threading.Event(), threading.Event()

    def handle_error(self, *_: object) -> None:
        """Clients leave."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.may_end.set()
        made.shutdown()
        thread.join(BOUND_S)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look before each call, also after one that failed. One that is answered is waited for, however busy we are."""
    monkeypatch.setattr(relisting, "TIMED_RELIST_S", 0.0)
    monkeypatch.setattr(relisting, "RETRY_PAUSE_S", 0.0)
    monkeypatch.setattr(relisting, "RELIST_TIMEOUT_S", BOUND_S)


@pytest.fixture
def have_listed(server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says how the server lists from now on (`Server.lists`). Nobody waits long for one that is silent."""

    def have_listed(how: str) -> None:
        monkeypatch.setattr(relisting, "RELIST_TIMEOUT_S", SILENCE_S if how == "silent" else BOUND_S)
        server.lists = how

    return have_listed


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No look after one that failed."""
    monkeypatch.setattr(relisting, "RETRY_PAUSE_S", 3600.0)
    monkeypatch.setattr(relisting, "MAX_RETRY_PAUSE_S", 3600.0)


@contextlib.contextmanager
def call_under_way(server: Server) -> Iterator[DirectEngine]:
    """An engine whose first call is with the server. It is answered when the block ends."""
    with remote_engine(server.server_port) as engine:
        number = engine.begin("waits")
        assert server.has_begun.wait(BOUND_S)
        yield engine
        server.may_end.set()
        result = engine.read().result
        assert (result.invocation_id, result.content[0].text) == (number, "waits")


@pytest.mark.usefixtures("once")
@pytest.mark.parametrize("lists", ["refused", "silent"])
def test_failed_look_costs_no_call(server: Server, have_listed: Callable[[str], None], lists: str) -> None:
    with call_under_way(server) as engine:
        have_listed(lists)
        for _ in range(3):
            assert engine.call("echo").content[0].text == "echo"
        told = [line for line in engine.lines if ANEW in line]
        assert len(told) == 1
        assert ("HTTP status 503" if lists == "refused" else "doesn't answer") in told[0]
        assert lists != "silent" or server.given_up.wait(BOUND_S), "its place is free for another request"


@pytest.mark.parametrize("lists", ["refused", "silent"])
def test_change_is_found_by_the_look_after_one_that_failed(
    server: Server, have_listed: Callable[[str], None], lists: str
) -> None:
    with call_under_way(server) as engine:
        have_listed(lists)
        assert engine.call("echo").content[0].text == "echo"
        have_listed("Otherwise.")
        assert engine.call("echo").error.reason == "definition_changed"
        have_listed(lists)
        assert engine.call("echo").error.reason == "definition_changed", "what the look before told holds"
        have_listed("As pinned.")
        assert engine.call("echo").content[0].text == "echo"


@pytest.mark.parametrize("lists", ["refused", "silent"])
def test_list_that_stays_unknown_has_new_calls_refused_until_it_is_known(
    server: Server, have_listed: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, lists: str
) -> None:
    monkeypatch.setattr(relisting, "UNKNOWN_AFTER_S", 0.0)
    with call_under_way(server) as engine:
        have_listed(lists)
        assert engine.call("echo").content[0].text == "echo", "one look that fails is none"
        for _ in range(2):
            error = engine.call("echo").error
            assert (error.reason, error.retryable) == ("definition_unknown", True)
        have_listed("As pinned.")
        assert engine.call("echo").content[0].text == "echo"
        assert len(engine.lines) == 3, engine.lines


def test_changed_tool_is_refused_by_the_first_look(server: Server, have_listed: Callable[[str], None]) -> None:
    with call_under_way(server) as engine:
        have_listed("Otherwise.")
        assert engine.call("echo").error.reason == "definition_changed"


STDIO = """
import json, sys
FAILS = %r
lists = 0
def send(said):
    print(json.dumps({"jsonrpc": "2.0", **said}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    number, method = asked.get("id"), asked["method"]
    if method == "initialize":
        send({"id": number, "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}})
    elif method == "tools/list":
        lists += 1
        tools = [{"name": "change", "description": "The same."}]
        if lists == 1 or not FAILS:
            tools[0]["description"] = "The same." if lists == 1 else "Not the same."
            send({"id": number, "result": {"tools": tools}})
        elif FAILS == "refused":
            send({"id": number, "error": {"code": -32603, "message": "not now"}})
    elif method == "tools/call":
        send({"method": "notifications/tools/list_changed"})
        send({"id": number, "result": {"content": [{"type": "text", "text": "changed"}]}})
    elif number is not None:
        send({"id": number, "error": {"code": -32601, "message": "no method"}})
"""


@pytest.mark.usefixtures("once")
@pytest.mark.parametrize("fails", ["refused", "silent"])
def test_server_that_says_that_its_list_has_changed_and_lists_none_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    if fails == "silent":
        monkeypatch.setattr(relisting, "RELIST_TIMEOUT_S", SILENCE_S)
    with direct_engine(tmp_path, STDIO % fails) as engine:
        for _ in range(3):
            assert engine.call("change").content[0].text == "changed"
        assert len([line for line in engine.lines if ANEW in line]) == 1


ASKS = STDIO.replace('asked["method"]', 'asked.get("method")').replace(
    'elif method == "tools/call":',
    """elif method == "tools/call" and lists > 1:
        asking = number
        send({"id": "form", "method": "elicitation/create", "params": {"message": "Which?", "requestedSchema": {}}})
    elif method is None:
        send({"id": asking, "result": {"content": [{"type": "text", "text": json.dumps(asked)}]}})
    elif method == "tools/call":""",
)
"""Asks its client in each call but the first."""


@pytest.mark.usefixtures("once")
def test_server_that_never_answers_a_look_may_still_ask_its_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relisting, "RELIST_TIMEOUT_S", SILENCE_S)
    with direct_engine(tmp_path, ASKS % "silent") as engine:
        assert engine.call("change").content[0].text == "changed"
        number = engine.begin("change")
        question = engine.read().question
        assert question.invocation_id == number
        action = tool_pb2.ANSWER_ACTION_DECLINE
        answer = pb.Answer(invocation_id=number, request_id=question.request_id, action=action)
        engine.send(pb.HostFrame(answer=answer))
        assert "decline" in engine.read().result.content[0].text


def test_server_that_lists_what_has_changed_is_refused(tmp_path: Path) -> None:
    with direct_engine(tmp_path, STDIO % "") as engine:
        assert engine.call("change").content[0].text == "changed"
        assert engine.call("change").error.reason == "definition_changed"
