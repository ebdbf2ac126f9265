"""Whatever bytes a server answers with and whatever bytes a program sends to the relay: typed errors, and one event."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from ipaddress import IPv4Address, IPv6Address

import pytest
from fumehood_server.egress import MAX_PIECE_BYTES, EgressFailedError, EgressLimits, Outcome, Reason
from fumehood_server.egress.broker import Broker
from fumehood_server.egress.decoding import Decoder
from fumehood_server.egress.relay import Relay
from fumehood_server.egress.stream import Stream
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.egress.support import ORIGIN, Events, Net, Recorder, external, fetch, names

pytestmark = pytest.mark.promise("S805")

LIMITS = EgressLimits(
    timeout_s=5, max_response_bytes=500, max_received_bytes=2000, max_tunnel_bytes=300, max_request_bytes=50
)
HOSTS = ("good.test:80", "good.test:443")

_fields = st.sampled_from(
    [
        b"content-length: 3\r\n",
        b"content-length: 99\r\n",
        b"Content-Length: 3, 3\r\n",
        b"transfer-encoding: chunked\r\n",
        b"transfer-encoding: gzip\r\n",
        b"content-encoding: gzip\r\n",
        b"content-encoding: deflate\r\n",
        b"content-encoding: \xff\r\n",
        b"location: /x\r\n",
        b"location: //\xff\r\n",
        b"location:\r\n",
        b"connection: upgrade, x\r\n",
        b"upgrade: x\r\n",
        b"expect: 100-continue\r\n",
        b"host: good.test\r\n",
        b" folded\r\n",
        b"no colon\r\n",
        b": nameless\r\n",
        b"x: \x00\r\n",
    ]
)
_heads = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.0 200 OK\r\n",
        b"HTTP/1.1 204 OK\r\n",
        b"HTTP/1.1 302 X\r\n",
        b"HTTP/1.1 100 X\r\n\r\n",
        b"HTTP/1.1 101 X\r\n",
        b"HTTP/1.1 999 \xff\r\n",
        b"HTTP/2 200\r\n",
        b"HTTP/1.1 20\r\n",
        b"\r\n\r\n",
    ]
)
_lines = st.sampled_from(
    [
        b"GET http://good.test/ HTTP/1.1\r\n",
        b"POST http://good.test/ HTTP/1.1\r\n",
        b"HEAD http://good.test/ HTTP/1.0\r\n",
        b"CONNECT good.test:443 HTTP/1.1\r\n",
        b"CONNECT good.test:443 HTTP/1.0\r\n",
        b"CONNECT evil.test:443 HTTP/1.1\r\n",
        b"GET http://evil.test/ HTTP/1.1\r\n",
        b"GET http://good.test@evil.test/ HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n",
    ]
)
_bodies = st.sampled_from([b"abc", b"3\r\nabc\r\n0\r\n\r\n", b"3;x\r\nabc", gzip.compress(b"abc"), b"x" * 600, b"\r\n"])


def _wire(first: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[bytes]]:
    """Bytes that nearly are a message, cut anywhere."""
    blank, junk = st.sampled_from([b"\r\n", b"\r\n", b"\n", b""]), st.binary(max_size=20)
    built = st.tuples(first, st.lists(_fields, max_size=4).map(b"".join), blank, _bodies | junk, junk).map(b"".join)
    return st.tuples(built | junk, st.lists(st.integers(1, 60), max_size=6)).map(lambda both: _cut(*both))


def _cut(data: bytes, lengths: list[int]) -> list[bytes]:
    pieces = []
    for length in lengths:
        pieces.append(data[:length])
        data = data[length:]
    return [piece for piece in (*pieces, data) if piece]


class _Scripted:
    """A stream that yields `pieces`, then EOF, and records what is sent."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = list(pieces)
        self.sent = b""
        self.closed = False

    async def receive_some(self) -> bytes:
        await asyncio.sleep(0)
        return self.pieces.pop(0) if self.pieces else b""

    async def send_all(self, data: bytes) -> None:
        self.sent += data

    def send_eof(self) -> None: ...

    async def close_gracefully(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class _Dialler:
    """Each dial gets a server that says the same."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces
        self.streams: list[_Scripted] = []
        self.dials: list[tuple[str, int]] = []

    async def dial(self, address: IPv4Address | IPv6Address, port: int, *, tls_name: str | None) -> Stream:
        assert tls_name is None
        self.dials.append((str(address), port))
        self.streams.append(_Scripted(self.pieces))
        return self.streams[-1]


@settings(max_examples=150)
@given(pieces=_wire(_heads))
def test_any_answer_of_a_server_is_a_response_or_a_typed_error(pieces: list[bytes]) -> None:
    table, dialler, events = names(good_test="8.8.8.8"), _Dialler(pieces), Events()
    network = Net(Broker(resolver=table, dialler=dialler, sink=events), table, Recorder(), events)
    got = asyncio.run(fetch(network, "http://good.test/", external(*HOSTS, limits=LIMITS)))
    [event] = events
    assert event.reason is got.reason
    assert event.outcome is (Outcome.DONE if got.reason is None else event.outcome)
    assert len(got.body) <= 500
    assert all(0 < size <= MAX_PIECE_BYTES for size in got.pieces)
    assert all(stream.closed for stream in dialler.streams)
    if got.status:
        assert 200 <= got.status <= 999


@settings(max_examples=150)
@given(request=_wire(_lines), answer=_wire(_heads))
def test_any_bytes_of_a_program_end_in_a_request_by_the_rules_or_in_a_refusal(
    request: list[bytes], answer: list[bytes]
) -> None:
    table, dialler, events = names(good_test="8.8.8.8"), _Dialler(answer), Events()
    relay = Relay(Broker(resolver=table, dialler=dialler, sink=events))
    program = _Scripted(request)
    asyncio.run(relay._serve_one(program, external(*HOSTS, limits=LIMITS), lambda: ORIGIN))
    assert program.closed
    assert set(dialler.dials) <= {("8.8.8.8", 80), ("8.8.8.8", 443)}
    assert all(stream.closed for stream in dialler.streams)
    assert len(events) == 1 or not b"".join(request).strip()
    assert len(dialler.dials) <= len(events)
    for stream in dialler.streams:
        if dialler.dials[0][1] == 80:
            assert stream.sent.count(b"HTTP/1.1\r\n") == 1
            assert stream.sent.lower().count(b"host: good.test\r\n") == 1
    if events and events[0].reason is not None and program.sent:
        assert program.sent.startswith((b"HTTP/1.1 ", b"HTTP/1.0 "))


@given(
    plain=st.binary(max_size=300),
    wbits=st.sampled_from([31, 15, -15]),
    lengths=st.lists(st.integers(1, 50), max_size=10),
    cut=st.integers(0, 5),
)
def test_decoding_does_not_depend_on_where_a_body_is_cut(
    plain: bytes, wbits: int, lengths: list[int], cut: int
) -> None:
    coder = zlib.compressobj(wbits=wbits)
    coded = coder.compress(plain) + coder.flush()
    coded = coded[: len(coded) - cut]
    decoder = Decoder("gzip" if wbits > 15 else "deflate")
    reason: Reason | None = None
    decoded = b""
    try:
        for piece in _cut(coded, lengths):
            decoded += b"".join(decoder.decode_chunk(piece))
        decoder.check_end()
    except EgressFailedError as error:
        reason = error.reason
    if reason is None:
        assert decoded == plain or not coded
    else:
        assert (reason, bool(cut)) == (Reason.ENCODING_INVALID, True)
