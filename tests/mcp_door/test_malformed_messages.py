"""Over stdio, lines that are no messages, and JSON that parsers differ on: each request has its answer."""

from __future__ import annotations

import contextlib
import json
import subprocess
from typing import Any

import pytest
from fumehood_server.mcp.message_lines import MalformedMessageError, read_message, refuse_overlong
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import JSONRPCRequest

from tests.sidecar import Sidecar

from .stdio_process import begin, ended, receive, send, stdio_process
from .support import MODERN, modern

PARSE_ERROR, INVALID_REQUEST = -32700, -32600
PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
PONG = {"jsonrpc": "2.0", "id": 7, "result": {}}
LIMIT_BYTES = 8 * 1024 * 1024

REFUSED = {
    "no JSON": (b"garbage", PARSE_ERROR, None),
    "half a message": (b'{"jsonrpc":"2.0","id":11,"method":"ping"', PARSE_ERROR, None),
    "a message that is cut": (b'{"jsonrpc":"2.0","id":"a","method":"ping","params":{"x":[', PARSE_ERROR, "a"),
    "two on one line": (b'{"jsonrpc":"2.0","id":11,"method":"ping"} {}', PARSE_ERROR, 11),
    "UTF-16": ('{"jsonrpc":"2.0","id":11,"method":"ping"}'.encode("utf-16"), PARSE_ERROR, None),
    "5,000 digits": (b'{"jsonrpc":"2.0","id":11,"method":"ping","params":{"x":%s}}' % (b"9" * 5000), PARSE_ERROR, 11),
    "5,000 levels, as Python writes them": (
        b'{"jsonrpc": "2.0", "id": 11, "method": "ping", "params": {"x": %s}}' % (b"[" * 5000 + b"]" * 5000),
        PARSE_ERROR,
        11,
    ),
    "5,000 levels, as JavaScript writes them": (
        b'{"method":"ping","params":{"id":3,"x":%s},"jsonrpc":"2.0","id":11}' % (b"[" * 5000 + b"]" * 5000),
        PARSE_ERROR,
        11,
    ),
    "5,000 levels of an answer": (b'{"jsonrpc":"2.0","id":11,"result":{"x":%s}}' % (b"[" * 5000 + b"]" * 5000),
                                  PARSE_ERROR, None),
    "levels without end": (b"[" * 500_000, PARSE_ERROR, None),
    "too long, as Python writes it": (
        b'{"jsonrpc": "2.0", "id": 11, "method": "ping", "params": {"x": "%s"}}' % (b"x" * LIMIT_BYTES),
        INVALID_REQUEST,
        11,
    ),
    "too long, as JavaScript writes it": (
        b'{"method":"ping","params":{"x":"%s"},"jsonrpc":"2.0","id":"a"}' % (b"x" * LIMIT_BYTES),
        INVALID_REQUEST,
        "a",
    ),
    "a list of parameters": (b'{"jsonrpc":"2.0","id":11,"method":"tools/call","params":[1]}', INVALID_REQUEST, 11),
    "no version": (b'{"id":"a","method":"ping"}', INVALID_REQUEST, "a"),
    "a method that is none": (b'{"jsonrpc":"2.0","id":11,"method":5}', INVALID_REQUEST, 11),
    "an id alone": (b'{"jsonrpc":"2.0","id":11}', INVALID_REQUEST, 11),
    "an id that is a fraction": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', INVALID_REQUEST, None),
    "an id that is null": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', INVALID_REQUEST, None),
    "an id that is true": (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', INVALID_REQUEST, None),
    "a batch": (b'[{"jsonrpc":"2.0","id":11,"method":"ping"}]', INVALID_REQUEST, None),
    "an empty batch": (b"[]", INVALID_REQUEST, None),
    "an empty object": (b"{}", INVALID_REQUEST, None),
    "a number": (b"5", INVALID_REQUEST, None),
}  # fmt: skip

UNANSWERED = (
    b"",
    b" \r",
    b'{"jsonrpc":"2.0","method":5}',
    b'{"jsonrpc":"2.0","method":"notifications/initialized","params":[]}',
    b'{"jsonrpc":"2.0","id":11,"result":5}',
    b'{"jsonrpc":"2.0","id":1.5,"result":{}}',
    b'{"jsonrpc":"2.0","id":11,"error":"no"}',
)


def write(process: subprocess.Popen[bytes], *lines: bytes) -> None:
    assert process.stdin is not None
    for line in lines:
        process.stdin.write(line + b"\n")


def call(number: int, arguments: str, revision: str, **parts: str) -> bytes:
    """A call of `say` whose arguments are this JSON text."""
    message, _ = modern("tools/call", name="say", arguments={})
    if revision != MODERN:
        del message["params"]["_meta"]
    text = json.dumps({**message, "id": number}).replace('"arguments": {}', f'"arguments": {arguments}')
    for before, after in parts.items():
        text = text.replace(f'"{before}"', f'"{after}"')
    return text.encode()


def test_line_that_is_no_message_is_answered_with_an_error_and_the_next_one_served(sidecar: Sidecar) -> None:
    with stdio_process("--address", sidecar.target) as process:
        write(process, REFUSED["no JSON"][0])
        assert receive(process)["error"]["code"] == PARSE_ERROR, "before the handshake"
        begin(process)
        answers = {}
        for name, (line, _, _) in REFUSED.items():
            write(process, line)
            answer = receive(process)
            answers[name] = (answer["error"]["code"], answer["id"])
            send(process, PING)
            assert receive(process) == PONG, name
        assert answers == {name: (code, request_id) for name, (_, code, request_id) in REFUSED.items()}


def test_malformed_notification_or_answer_is_not_answered(sidecar: Sidecar) -> None:
    with stdio_process("--address", sidecar.target) as process:
        begin(process)
        write(process, *UNANSWERED)
        send(process, PING)
        assert receive(process) == PONG
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
        status, said = ended(process)
        assert (status, said.count("mcp_message_not_understood"), "Traceback" in said) == (0, 5, False), said


def test_message_too_long_that_stdin_ends_in_is_answered(sidecar: Sidecar) -> None:
    with stdio_process("--address", sidecar.target) as process:
        begin(process)
        assert process.stdin is not None
        process.stdin.write(b'{"jsonrpc":"2.0","id":11,"method":"ping","params":{"x":"' + b"x" * LIMIT_BYTES)
        process.stdin.close()
        process.stdin = None
        answer = receive(process)
        assert (answer["error"]["code"], answer["id"]) == (INVALID_REQUEST, 11)
        assert ended(process) == (0, "")


@pytest.mark.parametrize("revision", [MODERN, "2025-11-25"])
def test_json_that_parsers_differ_on_is_refused_by_the_call_it_stands_in(sidecar: Sidecar, revision: str) -> None:
    with stdio_process("--address", sidecar.target) as process:
        if revision != MODERN:
            begin(process)

        def outcome(line: bytes) -> Any:
            write(process, line)
            answer = receive(process)
            assert answer["id"] == 11
            if "error" in answer:
                return answer["error"]["code"]
            result = answer["result"]
            return result["_meta"]["fumehood/error"]["code"] if result["isError"] else result["content"][0]["text"]

        failed = "TOOL_EXECUTION_FAILED"
        assert outcome(b"\xef\xbb\xbf" + call(11, '{"text":"after a BOM"}', revision)) == "after a BOM"
        assert outcome(call(11, '{"text":"cut emoji \\ud83d"}', revision)) == failed
        assert outcome(call(11, '{"\\ud83d":1,"text":"x"}', revision)) == failed
        for levels in (64, 300, 900):
            assert outcome(call(11, f'{{"text":{"[" * levels}{"]" * levels}}}', revision)) == failed
        deepest = {
            outcome(call(11, f'{{"text":{"[" * levels}{"]" * levels}}}', revision)) for levels in range(900, 1000)
        }
        assert deepest <= {failed, -32602, PARSE_ERROR}
        assert outcome(call(11, "{}", revision, say="\\ud83d")) == -32602
        assert outcome(call(11, "{}", revision, **{"tools/call": "\\ud83d"})) == -32601
        assert outcome(call(11, '{"text":"honest"}', revision)) == "honest"


def test_id_with_half_a_surrogate_pair_comes_back_as_it_was(sidecar: Sidecar) -> None:
    with stdio_process("--address", sidecar.target) as process:
        begin(process)
        for method, outcome in (("ping", "result"), ("none", "error")):
            send(process, {**PING, "id": "12\ud800", "method": method})
            answer = receive(process)
            assert (answer["id"], outcome in answer) == ("12\ud800", True)


ALMOST_JSON = st.text('{}[]:,"\\ idmethosnrpcx10.e-').map(str.encode)


@given(st.binary(max_size=200) | ALMOST_JSON)
def test_any_bytes_are_a_message_or_refused(line: bytes) -> None:
    with contextlib.suppress(MalformedMessageError):
        read_message(line)
    assert refuse_overlong(line, 1).answer is not None


@given(
    st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.recursive(st.none() | st.text(), lambda each: st.lists(each) | st.dictionaries(st.text() | st.just("id"), each)),
    st.permutations(["jsonrpc", "id", "method", "params"]),
    st.booleans(),
)
def test_id_that_is_found_in_an_unparsed_request_is_the_requests_own(
    request_id: int | str, params: object, order: list[str], spaced: bool
) -> None:
    members = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": {"x": params}}
    separators = (", ", ": ") if spaced else (",", ":")
    line = json.dumps({name: members[name] for name in order}, separators=separators, ensure_ascii=False).encode(
        errors="replace"
    )
    message = read_message(line).message
    assert isinstance(message, JSONRPCRequest)
    refusal = refuse_overlong(line, 1).answer
    assert refusal is not None
    assert refusal.message.id in {request_id, None}  # type: ignore[union-attr]
