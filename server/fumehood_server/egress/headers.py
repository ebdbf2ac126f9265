"""Which header fields go out, over a redirect, and back in."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fumehood_server.egress.errors import EgressRefusedError, Reason
from fumehood_server.egress.messages import Headers

_MAX_FIELDS = 256
"""Of one head. Each costs time, however short."""
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Fields of one connection (RFC 9110 section 7.6.1)."""
_OURS = HOP_BY_HOP | {"host", "content-length", "expect", "http2-settings"}
"""Fields that the broker sets or that would change how the message is read."""
_METHOD_OVERRIDES = frozenset({"x-http-method", "x-http-method-override", "x-method-override"})
"""Fields by which many servers take a GET for something else: only where every method is allowed anyway."""

_CROSSING = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "cache-control",
        "content-encoding",
        "content-language",
        "content-type",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-unmodified-since",
        "range",
        "user-agent",
    }
)
"""What still goes out when a redirect leads to another origin. A list of what may, since keys travel in fields of any
name, not in `Authorization` and `Cookie` alone."""
_ABOUT_BODY = frozenset({"content-encoding", "content-language", "content-location", "content-type", "digest"})


def checked(headers: Headers, *, max_bytes: int, any_method: bool) -> Headers:
    """The header fields of a request, with names in lower case, if all of them may be sent.

    Raises:
        EgressRefusedError: `HEADER_NOT_ALLOWED`, or `REQUEST_TOO_LARGE` when there are too many.
    """
    if len(headers) > _MAX_FIELDS or sum(len(name) + len(value) + 4 for name, value in headers) > max_bytes:
        raise EgressRefusedError(
            Reason.REQUEST_TOO_LARGE, f"the header has more than {_MAX_FIELDS} fields or {max_bytes} bytes"
        )
    kept = []
    for name, value in headers:
        lower = name.lower()
        if not _NAME.fullmatch(name):
            raise EgressRefusedError(Reason.HEADER_NOT_ALLOWED, f'"{name[:64]}" is no name for a header field')
        if not _VALUE.fullmatch(value):
            raise EgressRefusedError(
                Reason.HEADER_NOT_ALLOWED, f'the value of "{lower[:64]}" has a line break or another control character'
            )
        if lower in _OURS or lower.startswith("proxy-"):
            raise EgressRefusedError(Reason.HEADER_NOT_ALLOWED, f'"{lower}" is set by the sidecar, not by a plugin')
        if lower in _METHOD_OVERRIDES and not any_method:
            raise EgressRefusedError(Reason.HEADER_NOT_ALLOWED, f'"{lower}" changes the method, which this level fixes')
        kept.append((lower, value.strip(" \t")))
    return tuple(kept)


def across_origins(headers: Headers) -> Headers:
    """What may go on to another origin: credentials of any kind may not."""
    return tuple(field for field in headers if field[0] in _CROSSING)


def without_body(headers: Headers) -> Headers:
    """The fields without those that describe a body, for a redirect that drops it (RFC 9110 section 15.4)."""
    return tuple(field for field in headers if field[0] not in _ABOUT_BODY)


def end_to_end(headers: Iterable[tuple[str, str]]) -> Headers:
    """The fields without those of the connection, whether listed in RFC 9110 or named by `Connection`."""
    fields = tuple(headers)
    named = {
        token.strip().lower()
        for name, value in fields
        if name in {"connection", "proxy-connection"}
        for token in value.split(",")
    }
    return tuple(field for field in fields if field[0] not in HOP_BY_HOP and field[0] not in named)


def too_large(headers: Headers, max_bytes: int) -> bool:
    """Whether a response's head is over the caps."""
    return len(headers) > _MAX_FIELDS or sum(len(name) + len(value) + 4 for name, value in headers) > max_bytes
