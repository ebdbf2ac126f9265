"""Ids of requests in a session of 2025-11-25, and streams that are taken up again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.sidecar import Sidecar, running_sidecar

from .support import BOUND_S, request, session, url_of

TABLE = '[mcp]\nlisten = "127.0.0.1:0"\nallow_anonymous = true\n'


@pytest.fixture(scope="module")
def sidecar(plugin_folder: Any) -> Iterator[Sidecar]:
    with running_sidecar([plugin_folder], more=TABLE) as running:
        running.logged(event="mcp_serving")
        yield running


def headers(url: str) -> dict[str, str]:
    """Of a new session's requests."""
    return {"Mcp-Session-Id": session(url, ""), "MCP-Protocol-Version": "2025-11-25"}


def call(call_id: object, name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments, "_meta": {"progressToken": "t"}}
    return {"jsonrpc": "2.0", "id": call_id, "method": "tools/call", "params": params}


@contextlib.contextmanager
def begun(url: str, shown: dict[str, str], call_id: object) -> Iterator[HTTPResponse]:
    """The stream of a call that goes on until it is cancelled."""
    where = urlsplit(url)
    connection = HTTPConnection(where.hostname or "", where.port or 0, timeout=BOUND_S)
    accept = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    with contextlib.closing(connection):
        connection.request("POST", where.path, json.dumps(call(call_id, "wait")), {**accept, **shown})
        answer = connection.getresponse()
        assert answer.status == 200
        assert "begun" in events(answer)["params"]["message"]
        yield answer


def events(answer: HTTPResponse) -> dict[str, Any]:
    """The next message of a stream."""
    while not (line := answer.readline()).startswith(b"data: {"):
        assert line, "the stream has ended"
    found: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
    return found


def cancel(url: str, shown: dict[str, str], call_id: object) -> None:
    body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call_id}}
    assert request(url, body=body, **shown)[0] == 202


@pytest.mark.parametrize(("first", "second"), [(5, 5), ("a", "a"), (6, "6")])
def test_an_id_that_is_under_way_is_refused_and_its_first_request_has_its_outcome(
    sidecar: Sidecar, first: object, second: object
) -> None:
    url = url_of(sidecar)
    shown = headers(url)
    with begun(url, shown, first) as stream:
        status, _, answer = request(url, body=call(second, "say", text="x"), **shown)
        assert (status, json.loads(answer)["error"]["code"]) == (400, -32600)
        assert request(url, body=call("another", "say", text="x"), **shown)[0] == 200
        assert request(url, body=call(second, "say", text="x"), **headers(url))[0] == 200, "another session"
        cancel(url, shown, first)
        assert events(stream)["id"] == first
    for _ in range(3):  # what has ended is free
        status, _, answer = request(url, body=call(second, "say", text="x"), **shown)
        assert (status, b'"text":"x"' in answer) == (200, True)


def test_an_id_stays_under_way_when_its_connection_has_ended(sidecar: Sidecar) -> None:
    url = url_of(sidecar)
    shown = headers(url)
    with begun(url, shown, 5):
        pass
    assert request(url, body=call(5, "say", text="x"), **shown)[0] == 400
    cancel(url, shown, 5)
    while (status := request(url, body=call(5, "say", text="x"), **shown)[0]) != 200:  # until it has ended
        assert status == 400


def test_the_name_of_the_sessions_own_stream_is_no_id(sidecar: Sidecar) -> None:
    url = url_of(sidecar)
    shown = headers(url)
    assert request(url, body=call("_GET_stream", "say", text="x"), **shown)[0] == 400
    assert request(url, body=call("_POST_stream", "say", text="x"), **shown)[0] == 200


def test_a_stream_that_is_taken_up_again_begins_anew(sidecar: Sidecar) -> None:
    url = url_of(sidecar)
    where = urlsplit(url)
    shown = {**headers(url), "Accept": "text/event-stream"}
    for more in ({}, {"Last-Event-ID": "1"}):
        with contextlib.closing(HTTPConnection(where.hostname or "", where.port or 0, timeout=BOUND_S)) as connection:
            connection.request("GET", where.path, headers={**shown, **more})
            answer = connection.getresponse()
            assert (answer.status, answer.getheader("Content-Type")) == (200, "text/event-stream"), more
        shown["Mcp-Session-Id"] = headers(url)["Mcp-Session-Id"]
    assert [line for line in sidecar.log() if line["event"] == "library_log"] == []


@pytest.mark.parametrize("wrong", [1.5, None, True, {}])
def test_a_request_whose_id_is_none_is_refused_and_is_no_notification(sidecar: Sidecar, wrong: object) -> None:
    url = url_of(sidecar)
    for shown in ({}, headers(url)):
        opening = {"jsonrpc": "2.0", "id": wrong, "method": "initialize", "params": {}}
        status, _, answer = request(url, body=call(wrong, "say", text="x") if shown else opening, **shown)
        assert (status, json.loads(answer)["error"]["code"]) == (400, -32600)
        assert "id" in json.loads(answer)["error"]["message"]
    assert request(url, body=call(1, "say", text="x"), **shown)[0] == 200
    assert request(url, body={"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}, **shown)[0] == 202
