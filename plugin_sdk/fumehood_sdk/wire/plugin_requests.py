"""Encodes requests of calls to the sidecar, such as `HttpRequest`. Imported when the first one is made."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from fumehood_sdk.wire import varint
from fumehood_sdk.wire.fields import bytes_field, encode_text, number_field, optional_bytes_field, text_field

HTTP_REQUEST, SECRET_REQUEST, QUESTION, INFERENCE_REQUEST = 0x2A, 0x32, 0x42, 0x4A
"""Tags of the frames."""
_NANOS_PER_S = 1_000_000_000


def encode_http_request(
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
    out = (
        number_field(0x08, invocation_id)
        + number_field(0x10, request_id)
        + bytes_field(0x1A, encode_text(method))
        + bytes_field(0x22, encode_text(url))
    )
    for name, value in headers:
        out += bytes_field(0x2A, text_field(0x0A, name) + text_field(0x12, value))
    out += optional_bytes_field(0x32, body)
    if timeout_s is not None:
        # A duration of nothing would be absent, and so unbounded.
        seconds, nanos = divmod(max(int(timeout_s * _NANOS_PER_S), 1), _NANOS_PER_S)
        out += bytes_field(0x3A, number_field(0x08, seconds) + number_field(0x10, nanos))
    if max_bytes is not None:
        out += number_field(0x40, max(max_bytes, 1))
    if max_redirects is not None:
        out += b"\x48" + varint.encode(max_redirects)
    return out


def encode_secret_request(invocation_id: int, request_id: int, name: str) -> bytes:
    """Encode a `SecretRequest`."""
    return number_field(0x08, invocation_id) + number_field(0x10, request_id) + text_field(0x1A, name)


def encode_question(invocation_id: int, request_id: int, message: str, schema_json: bytes, name: str = "") -> bytes:
    """Encode a `Question`."""
    out = number_field(0x08, invocation_id) + number_field(0x10, request_id)
    out += text_field(0x1A, message) + optional_bytes_field(0x22, schema_json)
    return out + text_field(0x2A, name)


def encode_inference_request(
    invocation_id: int,
    request_id: int,
    messages: Iterable[tuple[int, str]],
    *,
    system_prompt: str,
    max_tokens: int,
    temperature: float | None,
    stop_sequences: Iterable[str],
) -> bytes:
    """Encode an `InferenceRequest`. Messages are roles, as `InferenceRole` numbers them, and texts."""
    out = number_field(0x08, invocation_id) + number_field(0x10, request_id)
    for role, text in messages:
        out += bytes_field(0x1A, number_field(0x08, role) + text_field(0x12, text))
    out += text_field(0x22, system_prompt) + number_field(0x28, max_tokens)
    if temperature is not None:
        out += b"\x31" + struct.pack("<d", temperature)
    return out + b"".join(bytes_field(0x3A, encode_text(each)) for each in stop_sequences)
