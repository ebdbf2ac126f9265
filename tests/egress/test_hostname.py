"""Host names: accepted ones become canonical, and every other spelling is refused."""

from __future__ import annotations

import string
from ipaddress import IPv4Address, IPv6Address

import pytest
from fumehood_server.egress.errors import EgressRefusedError, Reason
from fumehood_server.egress.hostname import canonical_host
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.promise("S801")

_LDH = set(string.ascii_lowercase + string.digits + "-.")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("example.com", "example.com"),
        ("EXAMPLE.Com", "example.com"),
        ("r3---sn-4g5e6nsz.example.com", "r3---sn-4g5e6nsz.example.com"),
        ("a-1.b", "a-1.b"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("faß.example", "xn--fa-hia.example"),
        ("日本。example", "xn--wgv71a.example"),
        ("\uff45xample\uff0ecom", "example.com"),
        ("1.2.3.4.example", "1.2.3.4.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("[2001:DB8:0:0::1]", "2001:db8::1"),
        ("[::ffff:1.2.3.4]", "::ffff:102:304"),
    ],
)
def test_a_host_has_one_spelling(text: str, name: str) -> None:
    host = canonical_host(text)
    assert host.name == name
    assert canonical_host(str(host)) == host


def test_addresses_are_told_from_names() -> None:
    assert canonical_host("192.0.2.1").address == IPv4Address("192.0.2.1")
    assert canonical_host("[::1]").address == IPv6Address("::1")
    assert str(canonical_host("[::1]")) == "[::1]"
    assert canonical_host("example.com").address is None


@pytest.mark.parametrize(
    "text",
    [
        # addresses in the spellings that inet_aton takes
        "127.1",
        "127.0.1",
        "2130706433",
        "017700000001",
        "0x7f000001",
        "0x7f.0.0.1",
        "0X7F.1",
        "0177.0.0.1",
        "127.0.0.01",
        "127.0.0.0x1",
        "127.0.0.1.",
        "127.0.0.256",
        "1.2.3.4.5",
        "0",
        "0x",
        "example.0x7f",
        "example.123",
        "\uff11\uff12\uff17.0.0.1",
        "127。0。0。1",
        "①②⑦.0.0.1",
        "١٢٧.0.0.1",
        # IPv6 that is not exactly that
        "::1",
        "[::1",
        "::1]",
        "[::1]x",
        "[fe80::1%eth0]",
        "[fe80::1%25eth0]",
        "[127.0.0.1]",
        "[::ffff:127.1]",
        "[v1.x]",
        "[]",
        "[[::1]]",
        # characters
        "",
        ".",
        "..",
        ".example.com",
        "example..com",
        "example.com.",
        "example.com..",
        "-example.com",
        "example-.com",
        "exa_mple.com",
        "exa mple.com",
        "example.com ",
        "example.com\x00.evil.test",
        "example.com\r\nHost: evil.test",
        "example.com\n",
        "example.com\t",
        "exam%70le.com",
        "example.com%00",
        "example.com/evil",
        "example.com\\evil",
        "user@example.com",
        "example.com:80",
        "example.com#",
        "example.com?",
        "*.example.com",
        "a" * 64 + ".com",
        ".".join(["a" * 60] * 5),
        "a" * 5000,
        "é" * 5000,
        # internationalised names that IDNA 2008 refuses
        "xn--",
        "xn--a.example",
        "xn--bcher-kva8445foa.example",
        "☃.example",
        "exa\u200bmple.com",
        "\u202eexample.com",
        "a\u2044b.example",
        "a\u2105.example",
        "\ud800.example",
    ],
)
def test_an_odd_spelling_is_refused(text: str) -> None:
    with pytest.raises(EgressRefusedError) as refusal:
        canonical_host(text)
    assert refusal.value.reason is Reason.HOST_INVALID
    assert refusal.value.message.isprintable()


@pytest.mark.parametrize(
    "text", ["localhost", "LOCALHOST", "a.localhost", "deep.er.LocalHost", "\uff4cocalhost", "a。localhost"]
)
def test_names_of_this_machine_are_reserved(text: str) -> None:
    with pytest.raises(EgressRefusedError) as refusal:
        canonical_host(text)
    assert refusal.value.reason is Reason.HOST_RESERVED
    assert canonical_host(f"{text}.example").address is None  # the control: only the last label is reserved


@given(st.text(max_size=80) | st.from_regex(r"[0-9xXa-f.:\[\]%]{1,40}", fullmatch=True))
def test_whatever_is_accepted_is_canonical(text: str) -> None:
    try:
        host = canonical_host(text)
    except EgressRefusedError:
        return
    assert canonical_host(str(host)) == host
    if host.address is None:
        assert set(host.name) <= _LDH
        assert not host.name.endswith((".", "localhost"))
        assert not host.name.rpartition(".")[2].isdigit()
    else:
        assert str(host.address) == host.name
