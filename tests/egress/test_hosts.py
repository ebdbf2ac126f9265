"""Host entries: what they match, what they don't, and that deny wins."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from fumehood_sandbox import Level
from fumehood_server.egress import Access, EgressLimits, EgressRefusedError, HostEntryError, Reason, access_for
from fumehood_server.egress.hosts import HostRules, parse_denied, parse_granted
from fumehood_server.egress.url import split_authority

pytestmark = pytest.mark.promise("S802")


def _rules(*granted: str, deny: tuple[str, ...] = ()) -> HostRules:
    return HostRules(frozenset(map(parse_granted, granted)), frozenset(map(parse_denied, deny)))


def _check(rules: HostRules, text: str) -> Reason | None:
    host, port = split_authority(text)
    assert port is not None
    try:
        rules.check_host(host, port)
    except EgressRefusedError as refusal:
        return refusal.reason
    return None


@pytest.mark.parametrize(
    ("entry", "covered", "beside"),
    [
        (
            "api.example.com:443",
            "api.example.com:443",
            ["a.example.com:80", "example.com:443", "x.a.example.com:443"],
        ),
        ("API.Example.com:443", "api.example.com:443", ["api.example.comx:443", "xapi.example.com:443"]),
        ("*.example.com:443", "a.b.example.com:443", ["example.com:443", "badexample.com:443", "a.example.com:80"]),
        ("bücher.example:443", "xn--bcher-kva.example:443", ["bucher.example:443"]),
        ("192.0.2.1:80", "192.0.2.1:80", ["192.0.2.2:80", "1.192.0.2.1.example:80", "[::ffff:192.0.2.1]:80"]),
        ("[2001:db8:0::1]:80", "[2001:db8::1]:80", ["[2001:db8::2]:80"]),
        ("service:8080", "service:8080", ["service.example:8080"]),
    ],
)
def test_an_entry_covers_its_host_and_port_alone(entry: str, covered: str, beside: list[str]) -> None:
    rules = _rules(entry)
    assert _check(rules, covered) is None
    assert {_check(rules, text) for text in beside} == {Reason.HOST_NOT_GRANTED}


def test_deny_wins_over_grant() -> None:
    rules = _rules("*.example.com:443", "192.0.2.1:80", deny=("secret.example.com", "*.in.example.com:*", "192.0.2.1"))
    assert _check(rules, "open.example.com:443") is None
    assert _check(rules, "in.example.com:443") is None
    assert _check(rules, "secret.example.com:443") is Reason.HOST_DENIED
    assert _check(rules, "a.b.in.example.com:443") is Reason.HOST_DENIED
    assert _check(rules, "192.0.2.1:80") is Reason.HOST_DENIED
    assert rules.denies_address(ip_address("192.0.2.1"), 8080)
    assert not rules.denies_address(ip_address("192.0.2.2"), 8080)


def test_an_empty_list_means_no_network() -> None:
    assert not _rules()
    assert _check(_rules(), "example.com:443") is Reason.HOST_NOT_GRANTED


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "example.com",
        "example.com:",
        "example.com:*",
        "example.com:0",
        "example.com:99999",
        "https://example.com:443",
        "example.com:443/path",
        "user@example.com:443",
        "*:443",
        "*.:443",
        "*.com:443",
        "a.*.com:443",
        "*example.com:443",
        "*.*.example.com:443",
        "*.192.0.2.1:443",
        "127.1:443",
        "localhost:443",
        "::1:443",
        "10.0.0.0/8:443",
    ],
)
def test_a_malformed_entry_is_refused(entry: str) -> None:
    with pytest.raises(HostEntryError):
        parse_granted(entry)


@pytest.mark.parametrize("entry", ["api.example.com:443", "*.example.com:1", "[2001:db8::1]:80"])
def test_an_entry_reads_as_it_is_written(entry: str) -> None:
    assert str(parse_granted(entry)) == entry
    assert str(parse_denied("example.com")) == "example.com:*"


@pytest.mark.parametrize(
    ("level", "allowed", "refused"),
    [
        (Level.NONE, [], ["GET", "HEAD", "POST"]),
        (Level.READ, ["GET", "HEAD"], ["POST", "PUT", "OPTIONS", "get", "TRACE", "CONNECT"]),
        (Level.WRITE, ["GET", "HEAD"], ["POST", "DELETE", "PATCH"]),
        (
            Level.EXTERNAL,
            ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"],
            ["TRACE", "CONNECT", "post", "", "GET ", "PURGE"],
        ),
    ],
)
def test_methods_follow_the_level(level: Level, allowed: list[str], refused: list[str]) -> None:
    access = access_for(level)
    for method in allowed:
        access.check_method(method)
    for method in refused:
        with pytest.raises(EgressRefusedError) as refusal:
            access.check_method(method)
        assert refusal.value.reason is Reason.METHOD_NOT_ALLOWED
    assert access.tunnels is (level is Level.EXTERNAL)


def test_an_access_by_default_reaches_nothing() -> None:
    assert not Access().hosts
    assert not Access().methods
    with pytest.raises(ValueError, match="10"):
        access_for(Level.READ, allow_private=["10.0.0.0/8"])


def test_a_request_lowers_caps_and_never_raises_them() -> None:
    caps = EgressLimits(timeout_s=5, max_response_bytes=100, max_redirects=3)
    assert caps.lowered(timeout_s=9, max_response_bytes=1000, max_redirects=9) == caps
    assert caps.lowered() == caps
    assert caps.lowered(timeout_s=1, max_redirects=0) == EgressLimits(
        timeout_s=1, max_response_bytes=100, max_redirects=0
    )
