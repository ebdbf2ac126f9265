"""URL parsing: what is accepted, what is refused, and that the output parses as itself again."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

import pytest
from fumehood_server.egress.errors import EgressRefusedError, Reason
from fumehood_server.egress.url import join_url, parse_url
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.promise("S801")


@pytest.mark.parametrize(
    ("text", "canonical", "port"),
    [
        ("https://example.com", "https://example.com/", 443),
        ("HTTPS://Example.COM:443/", "https://example.com/", 443),
        ("http://example.com:8080?a=1", "http://example.com:8080/?a=1", 8080),
        ("http://example.com/a%20b;c=d/..//x?q=[1]|2&u=http://other.test/@#frag", None, 80),
        ("https://bücher.example/", "https://xn--bcher-kva.example/", 443),
        ("https://[2001:db8::1]:8443/", "https://[2001:db8::1]:8443/", 8443),
        ("http://192.0.2.1/", "http://192.0.2.1/", 80),
        ("http://example.com/?", "http://example.com/?", 80),
        ("http://example.com?/path", "http://example.com/?/path", 80),
    ],
)
def test_a_url_is_read_into_its_parts(text: str, canonical: str | None, port: int) -> None:
    url = parse_url(text)
    assert url.port == port
    assert str(url) == (canonical or text.partition("#")[0])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Reason.URL_INVALID),
        ("example.com", Reason.URL_INVALID),
        ("//example.com/", Reason.URL_INVALID),
        ("/path", Reason.URL_INVALID),
        ("https:example.com", Reason.URL_INVALID),
        ("https:/example.com", Reason.URL_INVALID),
        ("https:///example.com", Reason.HOST_INVALID),
        ("https://", Reason.HOST_INVALID),
        ("https://:443/", Reason.HOST_INVALID),
        ("https://?q", Reason.HOST_INVALID),
        (" https://example.com/", Reason.URL_INVALID),
        ("https://example.com/ ", Reason.URL_INVALID),
        ("https://example.com/a b", Reason.URL_INVALID),
        ("https://example.com/\r\nX: y", Reason.URL_INVALID),
        ("https://example.com\x00.evil.test/", Reason.URL_INVALID),
        ("https://example.com/\x00", Reason.URL_INVALID),
        ("https://exa\tmple.com/", Reason.URL_INVALID),
        ("https:\\\\example.com\\", Reason.URL_INVALID),
        ("https://example.com\\@evil.test/", Reason.URL_INVALID),
        ("https://granted.test@evil.test/", Reason.URL_INVALID),
        ("https://user:pass@example.com/", Reason.URL_INVALID),
        ("https://@example.com/", Reason.URL_INVALID),
        ("https://example.com:80@evil.test/", Reason.URL_INVALID),
        ("https://example.com:/", Reason.URL_INVALID),
        ("https://example.com:0/", Reason.URL_INVALID),
        ("https://example.com:65536/", Reason.URL_INVALID),
        ("https://example.com:0443/", Reason.URL_INVALID),
        ("https://example.com:+443/", Reason.HOST_INVALID),
        ("https://example.com:44x3/", Reason.HOST_INVALID),
        ("https://example.com:443:443/", Reason.HOST_INVALID),
        ("https://example.com:٤٤٣/", Reason.HOST_INVALID),
        ("https://::1/", Reason.HOST_INVALID),
        ("https://[::1%25lo]/", Reason.HOST_INVALID),
        ("https://[::1]evil.test/", Reason.HOST_INVALID),
        ("https://127.1/", Reason.HOST_INVALID),
        ("https://2130706433/", Reason.HOST_INVALID),
        ("https://example.com./", Reason.HOST_INVALID),
        ("https://exam%70le.com/", Reason.HOST_INVALID),
        ("https://a.localhost/", Reason.HOST_RESERVED),
        ("https://example.com/%zz", Reason.URL_INVALID),
        ("https://example.com/%", Reason.URL_INVALID),
        ("https://example.com/ü", Reason.URL_INVALID),
        ('https://example.com/"', Reason.URL_INVALID),
        ("https://example.com/<x>", Reason.URL_INVALID),
        ("https://example.com/?q={x}", Reason.URL_INVALID),
        ("https://example.com/" + "a" * 9000, Reason.URL_INVALID),
        ("file:///etc/passwd", Reason.SCHEME_NOT_ALLOWED),
        ("ftp://example.com/", Reason.SCHEME_NOT_ALLOWED),
        ("ws://example.com/", Reason.SCHEME_NOT_ALLOWED),
        ("gopher://example.com/", Reason.SCHEME_NOT_ALLOWED),
        ("unix:/run/x.sock", Reason.SCHEME_NOT_ALLOWED),
        ("javascript:alert(1)", Reason.SCHEME_NOT_ALLOWED),
        ("data:text/plain,x", Reason.SCHEME_NOT_ALLOWED),
    ],
)
def test_a_url_that_others_might_read_otherwise_is_refused(text: str, reason: Reason) -> None:
    with pytest.raises(EgressRefusedError) as refusal:
        parse_url(text)
    assert refusal.value.reason is reason


@pytest.mark.parametrize(
    ("location", "joined"),
    [
        ("https://other.test/x", "https://other.test/x"),
        ("//other.test:8443/x", "https://other.test:8443/x"),
        ("/x/../y?z", "https://example.com/y?z"),
        ("x", "https://example.com/a/x"),
        ("../x", "https://example.com/x"),
        ("../../../x/.", "https://example.com/x/"),
        ("./x?a/../b", "https://example.com/a/x?a/../b"),
        ("?n=2", "https://example.com/a/b?n=2"),
        ("#top", "https://example.com/a/b?n=1"),
        ("", "https://example.com/a/b?n=1"),
        ("..", "https://example.com/"),
        (".", "https://example.com/a/"),
    ],
)
def test_a_relative_redirect_is_resolved(location: str, joined: str) -> None:
    assert str(join_url(parse_url("https://example.com/a/b?n=1"), location)) == joined


@pytest.mark.parametrize(
    "location",
    ["//evil@other.test/", "\\\\other.test", "/\\other.test", "http://127.1/", " /x", "/x\r\n", "x:y", "/é", "//"],
)
def test_a_redirect_is_read_as_strictly_as_any_url(location: str) -> None:
    with pytest.raises(EgressRefusedError):
        join_url(parse_url("https://example.com/"), location)


_HOSTILE = st.text(alphabet=st.sampled_from("ahtps:/\\@.?#[]%01x7e\x00\r\n \t。é"), max_size=40)


@given(_HOSTILE.map("http://{}".format) | st.text(max_size=60))
def test_whatever_is_accepted_reads_as_itself_and_as_others_read_it(text: str) -> None:
    try:
        url = parse_url(text)
    except EgressRefusedError:
        return
    again = str(url)
    assert parse_url(again) == url
    assert again.isascii()
    assert " " not in again
    other = urlsplit(again)
    assert other.hostname == url.host.name
    assert (other.port or {"http": 80, "https": 443}[url.scheme]) == url.port
    assert other.username is None


@given(st.from_regex(r"[a./?]{0,20}", fullmatch=True).filter(lambda text: "//" not in text))
def test_relative_redirects_are_resolved_as_the_standard_library_does(location: str) -> None:
    base = parse_url("http://example.com/a/b/c?q")
    joined = urljoin(str(base), location)
    ours = str(join_url(base, location))
    assert ours.rstrip("?") == joined.rstrip("?") or not location.strip("?")
