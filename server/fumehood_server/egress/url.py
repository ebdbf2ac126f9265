"""URL parsing, strict. What is dialled and sent is made of its output alone, never of the text again."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fumehood_server.egress.errors import EgressRefusedError, Reason
from fumehood_server.egress.hostname import Host, canonical_host

MAX_URL_CHARS = 8192
_MAX_PORT = 65535
DEFAULT_PORTS = {"http": 80, "https": 443}

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_PARTS = re.compile(r"//([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.DOTALL)
# Every visible ASCII character but those that other parsers interpret differently, or that need quoting in a log.
_TARGET = re.compile(r"(?:[!$&'()*+,\-./0-9:;=?@A-Z\[\]_a-z|~]|%[0-9A-Fa-f]{2})*")
_AUTHORITY = re.compile(r"(\[[^\]@]*\]|[^:@\[\]]*)(?::([0-9]*))?")
_PORT = re.compile(r"[1-9][0-9]{0,4}")


@dataclass(frozen=True, slots=True)
class Url:
    """An absolute http or https URL without user information and fragment. Made by `parse_url` and `join_url` alone.

    `path` starts with "/"; `query` is None when there is no "?".
    """

    scheme: str
    host: Host
    port: int
    path: str
    query: str | None

    @property
    def target(self) -> str:
        """The request target (RFC 9112 section 3.2.1): the path and the query."""
        return self.path if self.query is None else f"{self.path}?{self.query}"

    @property
    def authority(self) -> str:
        """The value of `Host`: with the port only if it isn't the scheme's default."""
        return str(self.host) if self.port == DEFAULT_PORTS[self.scheme] else f"{self.host}:{self.port}"

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: URLs of one origin may be sent the same credentials (RFC 6454)."""
        return self.scheme, str(self.host), self.port

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def parse_url(text: str) -> Url:
    """Read an absolute URL, strictly.

    ASCII alone but for the host, which may be an internationalised name; no user information, no backslash, no
    space or control character anywhere, each "%" followed by two hexadecimal digits; a port, if any, from 1 to 65535
    without leading zeros. A fragment is dropped.

    Raises:
        EgressRefusedError: `URL_INVALID`, `SCHEME_NOT_ALLOWED`, `HOST_INVALID` or `HOST_RESERVED`.
    """
    if len(text) > MAX_URL_CHARS:
        raise EgressRefusedError(Reason.URL_INVALID, f"the URL is longer than {MAX_URL_CHARS} characters")
    if not text.isprintable() or " " in text or "\\" in text:
        raise EgressRefusedError(Reason.URL_INVALID, "the URL has a space, a backslash or a control character")
    scheme_match = _SCHEME.match(text)
    if scheme_match is None:
        raise EgressRefusedError(Reason.URL_INVALID, "the URL is not absolute: write https://host/path")
    scheme = scheme_match[1].lower()
    if scheme not in DEFAULT_PORTS:
        raise EgressRefusedError(Reason.SCHEME_NOT_ALLOWED, f'the scheme "{scheme[:32]}" is neither https nor http')
    parts = _PARTS.fullmatch(text, scheme_match.end())
    if parts is None:
        raise EgressRefusedError(Reason.URL_INVALID, f'the URL has no "//" after "{scheme}:"')
    authority, path, query = parts[1], parts[2] or "/", parts[3]
    if not _TARGET.fullmatch(path) or (query is not None and not _TARGET.fullmatch(query)):
        raise EgressRefusedError(
            Reason.URL_INVALID, "the path or the query has a character that must be percent-encoded"
        )
    host, port = split_authority(authority)
    return Url(scheme, host, DEFAULT_PORTS[scheme] if port is None else port, path, query)


def split_authority(text: str) -> tuple[Host, int | None]:
    """Read `host` or `host:port`.

    Raises:
        EgressRefusedError: `URL_INVALID`, `HOST_INVALID` or `HOST_RESERVED`.
    """
    if "@" in text:
        raise EgressRefusedError(Reason.URL_INVALID, "the URL has user information: send a header instead")
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise EgressRefusedError(Reason.HOST_INVALID, f'"{text[:80]}" is not a host and a port')
    port_text = match[2]
    if port_text is None:
        return canonical_host(match[1]), None
    if not _PORT.fullmatch(port_text) or int(port_text) > _MAX_PORT:
        raise EgressRefusedError(Reason.URL_INVALID, f'"{port_text[:8]}" is no port: 1 to 65535, no leading zero')
    return canonical_host(match[1]), int(port_text)


def join_url(base: Url, location: str) -> Url:
    """Read a redirect's `Location`, which may be relative (RFC 3986 section 5.2), by the same rules as any URL.

    Raises:
        EgressRefusedError: as `parse_url`.
    """
    if len(location) > MAX_URL_CHARS:
        raise EgressRefusedError(Reason.URL_INVALID, f"the redirect is longer than {MAX_URL_CHARS} characters")
    if _SCHEME.match(location):
        return parse_url(location)
    if location.startswith("//"):
        return parse_url(f"{base.scheme}:{location}")
    start = f"{base.scheme}://{base.authority}"
    if location.startswith("/"):
        path, mark, rest = _split_path(location)
        return parse_url(f"{start}{_without_dots(path)}{mark}{rest}")
    if location.startswith("?"):
        return parse_url(f"{start}{base.path}{location}")
    if not location or location.startswith("#"):
        return base
    path, mark, rest = _split_path(location)
    folder = base.path[: base.path.rindex("/") + 1]
    return parse_url(f"{start}{_without_dots(folder + path)}{mark}{rest}")


def _split_path(text: str) -> tuple[str, str, str]:
    """The path, "?" or "#" or nothing, and what follows that."""
    end = next((index for index, each in enumerate(text) if each in "?#"), len(text))
    return text[:end], text[end : end + 1], text[end + 1 :]


def _without_dots(path: str) -> str:
    """RFC 3986 section 5.2.4, for a path that starts with "/"."""
    kept: list[str] = []
    segments = path.split("/")[1:]
    for index, segment in enumerate(segments):
        last = index == len(segments) - 1
        if segment == "..":
            if kept:
                kept.pop()
        elif segment != ".":
            kept.append(segment)
            continue
        if last:
            kept.append("")
    return "/" + "/".join(kept)
