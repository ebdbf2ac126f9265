"""Whatever a plugin asks for and whatever a server redirects to: nothing that was not granted is ever dialled."""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from fumehood_server.egress import EgressRequest, Outcome
from fumehood_server.egress.addresses import why_not_public
from fumehood_server.egress.broker import Broker
from fumehood_server.egress.stream import Stream
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.egress.support import ORIGIN, Events, Net, Recorder, external, fetch, names

pytestmark = pytest.mark.promise("S802")

GRANTED = ("good.test:443", "good.test:80", "*.wild.test:80", "93.184.215.14:80", "10.0.0.5:80")
PRIVATE = ("10.0.0.5",)

_hosts = st.sampled_from(
    [
        "good.test",
        "GOOD.test",
        "good.test.",
        "a.wild.test",
        "wild.test",
        "evil.test",
        "good.test.evil.test",
        "93.184.215.14",
        "93.184.215.014",
        "10.0.0.5",
        "10.0.0.6",
        "127.1",
        "0x7f.1",
        "2130706433",
        "[::1]",
        "[::ffff:10.0.0.5]",
        "[::ffff:93.184.215.14]",
        "[fe80::1%25lo]",
        "localhost",
        "x.localhost",
        "good.test\x00.evil.test",
        "good.test\r\n",
        "good.test#",
        "good。test",
        "ⓖood.test",
        "",
    ]
)
_users = st.sampled_from(["", "", "", "good.test@", "u:p@", "good.test:80@", "evil.test\\@"])
_ports = st.sampled_from(["", "", ":80", ":443", ":22", ":080", ":", ":80:80", ":65536", ":\uff18\uff10"])
_paths = st.sampled_from(
    ["", "/", "/x?y=http://evil.test/", "//evil.test/", "/\\evil.test", "?@evil.test", "#@evil.test"]
)
_schemes = st.sampled_from(["http://", "https://", "HTTP://", "http:/", "http:\\\\", "//", "ftp://", "http:///", ""])
_built = st.builds(lambda *parts: "".join(parts), _schemes, _users, _hosts, _ports, _paths)
_urls = _built | st.text(max_size=40) | st.text(max_size=30).map("http://{}".format)
_addresses = st.lists(
    st.ip_addresses().map(str)
    | st.sampled_from(
        ["93.184.215.14", "2606:4700::1111", "10.0.0.5", "127.0.0.1", "169.254.169.254", "64:ff9b::7f00:1"]
    ),
    min_size=1,
    max_size=3,
)


class _Redirecting:
    """A connection to a server that redirects to the next of `locations`, and then is content."""

    def __init__(self, locations: list[str]) -> None:
        self._locations = locations
        self._said = False

    async def receive_some(self) -> bytes:
        if self._said:
            return b""
        self._said = True
        if not self._locations:
            return b"HTTP/1.1 200 X\r\ncontent-length: 0\r\n\r\n"
        location = self._locations.pop(0).encode("latin-1", "replace").replace(b"\r", b"").replace(b"\n", b"")
        return b"HTTP/1.1 302 X\r\ncontent-length: 0\r\nlocation: %s\r\n\r\n" % location.replace(b"\x00", b"")

    async def send_all(self, data: bytes) -> None:
        assert data.count(b"\r\n\r\n") == 1
        assert data.lower().count(b"\r\nhost: ") == 1

    def send_eof(self) -> None: ...

    async def close_gracefully(self) -> None: ...

    def abort(self) -> None: ...


class _Dialler:
    """Records what is dialled and for which name, and checks it against rules of its own."""

    def __init__(self, locations: list[str]) -> None:
        self.locations = locations
        self.dials: list[tuple[IPv4Address | IPv6Address, int]] = []

    async def dial(self, address: IPv4Address | IPv6Address, port: int, *, tls_name: str | None) -> Stream:
        self.dials.append((address, port))
        assert tls_name in {None, "good.test", "a.wild.test", "93.184.215.14", "10.0.0.5"}
        return _Redirecting(self.locations)


@settings(max_examples=200)
@given(url=_urls, locations=st.lists(_urls, max_size=4), good=_addresses, wild=_addresses)
def test_only_granted_hosts_at_allowed_addresses_are_dialled(
    url: str, locations: list[str], good: list[str], wild: list[str]
) -> None:
    table = names(good_test=good, a_wild_test=wild, evil_test="8.8.8.8", good_test_evil_test="8.8.8.8")
    dialler = _Dialler(list(locations))
    events = Events()
    network = Net(Broker(resolver=table, dialler=dialler, sink=events), table, Recorder(), events)
    asyncio.run(fetch(network, url, external(*GRANTED, private=PRIVATE)))
    assert set(table.asked) <= {"good.test", "a.wild.test"}
    allowed = {
        *((each, port) for each in good for port in (80, 443)),
        *((each, 80) for each in (*wild, "93.184.215.14", "10.0.0.5")),
    }
    for address, port in dialler.dials:
        assert (str(address), port) in {(str(ip_address(each)), at) for each, at in allowed}
        assert not why_not_public(address) or str(address) in PRIVATE
    [event] = events
    assert [hop.address for hop in event.hops if hop.address] == [str(address) for address, _ in dialler.dials]
    assert len(event.hops) - len(dialler.dials) in {0, 1}
    if event.outcome is Outcome.DONE:
        assert dialler.dials


@given(method=st.text(max_size=8), name=st.text(max_size=8), value=st.text(max_size=12), body=st.binary(max_size=8))
def test_no_text_breaks_out_of_its_place_in_a_request(method: str, name: str, value: str, body: bytes) -> None:
    table = names(good_test="8.8.8.8")
    dialler = _Dialler([])
    events = Events()
    network = Net(Broker(resolver=table, dialler=dialler, sink=events), table, Recorder(), events)

    async def ask() -> None:
        fields = ((name, value), ("x-fixed", value))
        await fetch(network, EgressRequest(method, "http://good.test/", fields, body), external(*GRANTED))

    asyncio.run(ask())
    assert len(events) == 1
    assert events[0].origin == ORIGIN
