"""Servers over HTTP that break the protocol: typed errors, nothing filled, and the next call is served."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_sdk.adapters.mcp.remote.event_stream import StreamPosition, TooLongError, events
from fumehood_sdk.adapters.mcp.remote.routing_headers import RoutingHeaders
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound

from tests.mcp.support import Caller
from tests.mcp.test_remote import granted, remote_plugin, remote_server
from tests.sidecar import Sidecar, running_sidecar

ENDLESS_S = 4
"""Of a stream without end: some thousand events."""


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    folder = tmp_path_factory.mktemp("hostile") / "hostile"
    with remote_server(program="hostile_http.py") as port:
        plugin = remote_plugin(folder, f"http://127.0.0.1:{port}/mcp")
        with running_sidecar([(plugin, granted(port, "answer", secrets=""))]) as running:
            yield running


@pytest.fixture
async def caller(sidecar: Sidecar) -> AsyncIterator[Caller]:
    async with sidecar.channel() as channel:
        yield Caller(channel)


@pytest.mark.parametrize("how", ["json", "stream", "others", "marked", "batch"])
async def test_each_form_of_an_answer_is_understood(caller: Caller, how: str) -> None:
    assert await caller.text("answer", how=how) == how


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("html", "HTTP status 200: <h1>not MCP</h1>"),
        ("down", "HTTP status 503: later"),
        ("wrong_id", "HTTP status 200"),
        ("forbidden", "HTTP status 403: [plugin.headers] can have a secret in a header field"),
        ("odd_error", "HTTP status 200"),
        ("no_json", "can't be read"),
        ("digits", "can't be read"),
        ("deep", "nested too deeply"),
        ("cut", "without an answer"),
        ("resumes_none", "without an answer, and resumes none: the MCP server answers with HTTP status 501"),
        ("never_again", "without an answer"),
        ("big", "more than"),
        ("big_in_parts", "more than"),
        ("reset", ""),
    ],
)
async def test_answer_that_is_none_is_a_typed_error_and_harms_no_other(caller: Caller, how: str, expected: str) -> None:
    result = await caller.call("answer", how=how)
    assert result.error.code == "TOOL_EXECUTION_FAILED", result
    assert expected in result.error.message
    is_malformed = how in ("no_json", "digits", "deep")
    assert (json.loads(result.error.details_json)["reason"] == "invalid_result") is is_malformed
    assert await caller.text("answer", how="json") == "json"


@pytest.mark.parametrize("how", ["comments", "notes"])
async def test_stream_without_end_ends_with_the_calls_time(caller: Caller, how: str) -> None:
    assert await caller.text("answer", how="json") == "json"
    request = pb.CallToolRequest(
        tool="answer", arguments_json=json.dumps({"how": how}), timeout=Duration(seconds=ENDLESS_S)
    )
    result = (await caller.stub.CallTool(request)).result
    assert result.error.code == "TOOL_TIMEOUT"
    after = await caller.call("answer", how="json")
    assert after.content[0].text == "json"
    assert after.usage.peak_memory_bytes < 256 * 1024 * 1024


LINE = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=20)
KIND = st.sampled_from([None, "", "message", "ping", "Message"])
EVENT = st.tuples(st.lists(LINE, max_size=3), st.none() | LINE, st.none() | st.integers(0, 10**6), KIND)
"""Lines of data, an id, a time to be left alone, and a type."""


@given(st.lists(EVENT, max_size=8), st.data())
def test_events_are_read_as_they_were_written_whatever_stands_between(
    written: list[tuple[list[str], str | None, int | None, str | None]], data: st.DataObject
) -> None:
    """As WHATWG HTML, 9.2.6, has it: an event has data where it has a line of data, and an id where one came before.

    Those of other types than `message` are for nobody here, and their ids and times count all the same.
    """
    sent, expected = data.draw(st.sampled_from([b"", b"\xef\xbb\xbf"])), StreamPosition()
    for lines, last_id, retry_ms, kind in written:
        end = data.draw(st.sampled_from([b"\n", b"\r\n"]))
        space = data.draw(st.sampled_from([b"", b" "]))
        fields = [b"data:" + (space or b" " * line.startswith(" ")) + line.encode() for line in lines]
        if last_id is not None:
            fields.insert(0, b"id: " + last_id.encode())
            expected.last_event_id = last_id.encode()
        if retry_ms is not None:
            fields.append(b"retry:%d" % retry_ms)
            expected.retry_ms = retry_ms
        if kind is not None:
            fields.append(b"event: " + kind.encode())
        between = data.draw(st.sampled_from([b"", b": comment\n", b"other\n", b"retry: soon\n"]))
        sent += between + b"".join(field + end for field in fields) + end
    position = StreamPosition()
    cut = b"id: cut\ndata: cut\n"
    found = [each.decode() for each in events(io.BytesIO(sent + cut), 1 << 20, position)]
    assert found == ["\n".join(lines) for lines, _, _, kind in written if lines and kind in (None, "", "message")]
    assert (position.last_event_id, position.retry_ms) == (expected.last_event_id, expected.retry_ms)


@given(st.binary(max_size=200), st.integers(min_value=1, max_value=64))
def test_no_event_is_larger_than_the_bound(written: bytes, most: int) -> None:
    try:
        found = list(events(io.BytesIO(written), most, StreamPosition()))
    except TooLongError:
        assert len(written) > most
    else:
        assert all(len(each) <= most for each in found)


ARGUMENTS = st.dictionaries(
    st.sampled_from("abc"),
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(codec="utf-8"))
    | st.dictionaries(st.just("d"), st.text()),
)


@given(ARGUMENTS)
def test_marked_arguments_are_repeated_as_the_official_sdk_repeats_them(arguments: dict[str, Any]) -> None:
    marked = {
        "a": {"type": "string", "x-mcp-header": "Region"},
        "b": {"type": "integer", "x-mcp-header": "Number"},
        "c": {"type": "object", "properties": {"d": {"type": "string", "x-mcp-header": "Deep"}}},
    }
    schema = {"type": "object", "properties": marked}
    routing = RoutingHeaders()
    routing.learn({"tools": [{"name": "t", "inputSchema": schema}, "no tool", {"name": 1}]})
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    message = {"method": "tools/call", "params": {"name": "t", "arguments": arguments, "_meta": meta}}
    theirs = inbound.mcp_param_headers(inbound.x_mcp_header_map(schema), arguments)
    expected = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "t", **theirs}
    assert routing.of(message) == expected
    assert routing.of(json.loads('{"method": "tools/call", "params": {"name": "t"}}')) == {}
