"""What a call asks of the sidecar, encoded: `HttpRequest` and `SecretRequest`. Imported when the first one is made."""

from __future__ import annotations

from collections.abc import Iterable

from fumehood_sdk.wire import varint
from fumehood_sdk.wire.plugin import number, optional, span, text

HTTP_REQUEST, SECRET_REQUEST = 0x2A, 0x32
"""Tags of the frames."""
_NANOS_PER_S = 1_000_000_000


def http_request(
    invocation_id: int,
    request_id: int,
    method: str,
    url: str,
    *,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    timeout_s: float | None,
    max_bytes: int | None,
    max_redirects: int | None,
) -> bytes:
    """Encode an `HttpRequest`. None takes the operator's cap."""
    out = number(0x08, invocation_id) + number(0x10, request_id) + span(0x1A, text(method)) + span(0x22, text(url))
    for name, value in headers:
        out += span(0x2A, optional(0x0A, text(name)) + optional(0x12, text(value)))
    out += optional(0x32, body)
    if timeout_s is not None:
        # A duration of nothing would be absent, and so unbounded.
        seconds, nanos = divmod(max(int(timeout_s * _NANOS_PER_S), 1), _NANOS_PER_S)
        out += span(0x3A, number(0x08, seconds) + number(0x10, nanos))
    if max_bytes is not None:
        out += number(0x40, max(max_bytes, 1))
    if max_redirects is not None:
        out += b"\x48" + varint.encode(max_redirects)
    return out


def secret_request(invocation_id: int, request_id: int, name: str) -> bytes:
    """Encode a `SecretRequest`."""
    return number(0x08, invocation_id) + number(0x10, request_id) + optional(0x1A, text(name))
