"""Header fields: which a request may carry, which cross origins on a redirect, which are hop-by-hop."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fumehood_server.egress.errors import EgressRefusedError, Reason
from fumehood_server.egress.messages import Headers
from fumehood_server.model.plugin_requests import MAX_HEADER_FIELDS

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
"""Hop-by-hop fields (RFC 9110 section 7.6.1)."""
_SET_BY_BROKER = HOP_BY_HOP | {"host", "content-length", "expect", "http2-settings"}
"""Fields that the broker sets or that would change how the message is read."""
_METHOD_OVERRIDES = frozenset({"x-http-method", "x-http-method-override", "x-method-override"})
"""Fields by which many servers take a GET for something else: only where every method is allowed anyway."""

_SAFE_ACROSS_ORIGINS = frozenset(
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
"""Allow-list for a redirect to another origin: keys travel in fields of any name, not in `Authorization` and `Cookie`
alone."""
_BODY_FIELDS = frozenset({"content-encoding", "content-language", "content-location", "content-type", "digest"})


def checked_headers(headers: Headers, *, max_bytes: int, any_method: bool) -> Headers:
    """The header fields of a request, with names in lower case, if all of them may be sent.

    Raises:
        EgressRefusedError: `HEADER_NOT_ALLOWED`, or `REQUEST_TOO_LARGE` when there are too many.
    """
    if len(headers) > MAX_HEADER_FIELDS or sum(len(name) + len(value) + 4 for name, value in headers) > max_bytes:
        raise EgressRefusedError(
            Reason.REQUEST_TOO_LARGE, f"the header has more than {MAX_HEADER_FIELDS} fields or {max_bytes} bytes"
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
        if lower in _SET_BY_BROKER or lower.startswith("proxy-"):
            raise EgressRefusedError(Reason.HEADER_NOT_ALLOWED, f'"{lower}" is set by the sidecar, not by a plugin')
        if lower in _METHOD_OVERRIDES and not any_method:
            raise EgressRefusedError(Reason.HEADER_NOT_ALLOWED, f'"{lower}" changes the method, which this level fixes')
        kept.append((lower, value.strip(" \t")))
    return tuple(kept)


def cross_origin_headers(headers: Headers) -> Headers:
    """The fields that may be sent to another origin: no credentials of any kind."""
    return tuple(field for field in headers if field[0] in _SAFE_ACROSS_ORIGINS)


def bodiless_headers(headers: Headers) -> Headers:
    """The fields without those that describe a body, for a redirect that drops it (RFC 9110 section 15.4)."""
    return tuple(field for field in headers if field[0] not in _BODY_FIELDS)


def end_to_end_headers(headers: Iterable[tuple[str, str]]) -> Headers:
    """The fields without the hop-by-hop ones, whether listed in RFC 9110 or named by `Connection`."""
    fields = tuple(headers)
    named = {
        token.strip().lower()
        for name, value in fields
        if name in {"connection", "proxy-connection"}
        for token in value.split(",")
    }
    return tuple(field for field in fields if field[0] not in HOP_BY_HOP and field[0] not in named)


def head_too_large(headers: Headers, max_bytes: int) -> bool:
    """Whether a response's head is over the caps."""
    return len(headers) > MAX_HEADER_FIELDS or sum(len(name) + len(value) + 4 for name, value in headers) > max_bytes
