"""Bodies and heads that are cut as small as can be: what they cost, and who waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import h11
import pytest
from fumehood_server.egress import EgressLimits, EgressRequest, Reason
from fumehood_server.egress.chunked import ChunkedDecoder
from fumehood_server.egress.turns import Turns
from fumehood_server.model.plugin_requests import MAX_HEADER_FIELDS
from hypothesis import example, given
from hypothesis import strategies as st

from tests.egress.relaying import ask, relaying
from tests.egress.support import answering, external, fetch, names, net, reply

pytestmark = pytest.mark.promise("S805")

_HEAD = b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n"
_A = "http://a.test/"
_LIMITS = EgressLimits(timeout_s=30)


def _one_byte_chunks(count: int) -> bytes:
    return b"1\r\nx\r\n" * count + b"0\r\n\r\n"


@contextmanager
def _counted_iterations() -> Iterator[list[int]]:
    """How often another task gets its turn of the loop."""
    count = [0]

    async def other() -> None:
        while True:
            count[0] += 1
            await asyncio.sleep(0)

    task = asyncio.get_running_loop().create_task(other())
    try:
        yield count
    finally:
        task.cancel()


@dataclass
class _Asked:
    """What h11 is given to do, which takes microseconds for each event and each line."""

    events: int = 0
    lines: int = 0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> _Asked:
    asked = _Asked()
    next_event, receive_data = h11.Connection.next_event, h11.Connection.receive_data

    def counted_next_event(http: h11.Connection) -> object:
        asked.events += 1
        return next_event(http)

    def counted_receive_data(http: h11.Connection, data: bytes) -> None:
        asked.lines += data.count(b"\n")
        receive_data(http, data)

    monkeypatch.setattr(h11.Connection, "next_event", counted_next_event)
    monkeypatch.setattr(h11.Connection, "receive_data", counted_receive_data)
    return asked


_sizes = st.sampled_from([b"0", b"1", b"3", b"03", b"A", b"fF", b"-1", b"", b"g", b"3 "])
_ends = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b""])
_contents = st.sampled_from([b"", b"x", b"abc", b"x" * 10, b"x" * 255, b"\r\n"])
_chunks = st.lists(st.tuples(_sizes, _ends, _contents, _ends).map(b"".join), max_size=6).map(b"".join)
_sound = st.lists(st.binary(min_size=1, max_size=20), max_size=6).map(
    lambda bodies: b"".join(b"%x;x=y\r\n%s\r\n" % (len(body), body) for body in bodies)
)
_bodies = st.tuples(_chunks | _sound, st.sampled_from([b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n", b"", b"0\r\n"])).map(
    b"".join
)


@given(_bodies, st.lists(st.integers(1, 30), max_size=6))
@example(b"1\r\nx\r\n0\r\n\r0\r\n\r\n", [])
def test_the_decoder_reads_what_h11_reads_however_it_is_cut(wire: bytes, lengths: list[int]) -> None:
    http = h11.Connection(h11.CLIENT)
    http.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    http.send(h11.EndOfMessage())
    http.receive_data(_HEAD + wire)
    http.next_event()
    expected, fault, ended = b"", False, False
    try:
        while isinstance(event := http.next_event(), h11.Data):
            expected += event.data
        ended = isinstance(event, h11.EndOfMessage)
    except h11.RemoteProtocolError:
        fault = True

    decoder, found = ChunkedDecoder(), b""
    try:
        for length in (*lengths, len(wire)):
            piece, wire = wire[:length], wire[length:]
            decoder.feed(piece)
            while not decoder.hungry and not decoder.ended:
                found += decoder.decode_chunks(2)
            if decoder.ended:
                break
    except h11.RemoteProtocolError:
        # What is wrong may be known before all of it is there.
        assert fault or not ended
    else:
        assert (decoder.ended, fault) == (ended, False)
    assert found == expected


async def test_eight_bodies_of_one_byte_chunks_take_turns() -> None:
    count = 20_000
    async with answering(_HEAD + _one_byte_chunks(count)) as server:
        network = net(resolver=names(a_test="1.1.1.1"), to=server.port)
        access = external("a.test:80", limits=_LIMITS)
        with _counted_iterations() as iterations:
            got = await asyncio.gather(*(fetch(network, _A, access) for _ in range(8)))
    assert [len(each.body) for each in got] == [count] * 8
    assert iterations[0] > 8 * count / 600


async def test_h11_is_asked_nothing_about_a_chunk(asked: _Asked) -> None:
    count = 20_000
    async with answering(_HEAD + _one_byte_chunks(count)) as server:
        network = net(resolver=names(a_test="1.1.1.1"), to=server.port)
        got = await fetch(network, _A, external("a.test:80", limits=_LIMITS))
    assert len(got.body) == count
    assert 0 < asked.events < 20
    assert 0 < asked.lines <= _HEAD.count(b"\n")


def test_a_trailer_is_read_up_to_its_257th_field() -> None:
    decoder = ChunkedDecoder()
    decoder.feed(b"0\r\n" + b"a:\n" * 20_000 + b"\r\n")
    with pytest.raises(h11.RemoteProtocolError):
        decoder.decode_chunks(1)
    assert decoder._trailer_fields == MAX_HEADER_FIELDS, "no more were taken"


async def test_a_program_that_posts_one_byte_chunks_leaves_the_loop_to_others() -> None:
    count = 20_000
    head = b"POST http://a.test/ HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: chunked\r\n\r\n"
    async with answering(reply(b"took it")) as server:
        network = net(resolver=names(a_test="1.1.1.1"), to=server.port)
        async with relaying(network, external("a.test:80", limits=_LIMITS)) as port:
            with _counted_iterations() as iterations:
                answer = await ask(port, head + _one_byte_chunks(count))
    assert (answer.status, answer.body) == (200, b"took it")
    assert server.requests[0].endswith(b"x" * count)
    assert iterations[0] > count / 600


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 200 X\r\n" + b"a:\n" * 20_000 + b"\r\n", Reason.HEAD_TOO_LARGE),
        (_HEAD + b"0\r\n" + b"a:\n" * 20_000 + b"\r\n", Reason.RESPONSE_INVALID),
    ],
    ids=["head", "trailer"],
)
async def test_many_empty_fields_are_counted_before_they_are_parsed(
    answer: bytes, reason: Reason, asked: _Asked
) -> None:
    async with answering(answer) as server:
        network = net(resolver=names(a_test="1.1.1.1"), to=server.port)
        got = await fetch(network, _A, external("a.test:80", limits=_LIMITS))
    assert got.reason is reason
    assert asked.lines <= 2 * MAX_HEADER_FIELDS


async def test_256_fields_pass_in_a_head_and_in_a_trailer(asked: _Asked) -> None:
    fields = b"a: b\r\n" * 255
    head = _HEAD.removesuffix(b"\r\n") + fields + b"\r\n"
    async with answering(head + b"2\r\nok\r\n0\r\n" + fields + b"\r\n") as server:
        network = net(resolver=names(a_test="1.1.1.1"), to=server.port)
        got = await fetch(network, _A, external("a.test:80", limits=_LIMITS))
    assert (got.body, got.reason) == (b"ok", None)
    assert asked.lines == head.count(b"\n")


async def test_a_program_with_many_empty_fields_is_refused_before_they_are_parsed(asked: _Asked) -> None:
    network = net()
    async with relaying(network, external("a.test:80", limits=_LIMITS)) as port:
        answer = await ask(port, b"GET http://a.test/ HTTP/1.1\r\n" + b"a:\n" * 20_000 + b"\r\n")
    assert (answer.status, answer.refusal) == (400, Reason.PROXY_REQUEST_INVALID)
    assert asked.lines <= 2 * MAX_HEADER_FIELDS


async def test_a_body_without_a_length_is_read_as_before() -> None:
    async with answering(b"HTTP/1.1 200 X\r\n\r\n" + b"x" * 300_000, reply(b"")) as server:
        network = net(resolver=names(a_test="1.1.1.1"), to=server.port)
        access = external("a.test:80", limits=_LIMITS)
        assert len((await fetch(network, _A, access)).body) == 300_000
        assert (await fetch(network, EgressRequest("HEAD", _A), access)).reason is None


async def test_a_plugin_with_many_waiting_takes_every_other_turn_beside_a_second_one() -> None:
    turns, order = Turns(), list[str]()

    async def work(plugin: str) -> None:
        async with turns.of(plugin).turn():
            order.append(plugin)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(work("greedy"))
        for _ in range(3):
            tasks.create_task(work("other"))
    assert order[:8].count("other") == 3
    assert len(order) == 23
