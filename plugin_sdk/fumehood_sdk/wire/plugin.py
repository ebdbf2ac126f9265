"""Frames to the sidecar: `PluginFrame` of fumehood/v1/plugin.proto, encoded, their length before them."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from fumehood_sdk.wire import varint

READY, UPDATE, LOG, RESULT = 0x0A, 0x12, 0x1A, 0x22
"""Tags of the frames."""

DEBUG, INFO, WARNING, ERROR = 1, 2, 3, 4
"""Levels of a log line."""

Block = str | tuple[bytes, str]
"""One block of content: text, or bytes with their media type."""

Sent = tuple[tuple[Block, ...], bytes, bool]
"""A result: its content, its details as JSON, and the hint to stop."""


def frame(tag: int, body: bytes) -> bytes:
    """Wrap an encoded `Ready`, `Update`, `Log` or `Result` into a frame with its length before it."""
    return _delimited(_head(tag, body), body)


def frame_bytes(body: bytes) -> int:
    """Size of the frame around an encoded body, its length prefix not counted: what `max_frame_bytes` bounds."""
    return 1 + len(varint.encode(len(body))) + len(body)


def result(invocation_id: int, content: Iterable[Block], details_json: bytes, *, terminate: bool) -> bytes:
    """Encode a `Result` of a call that did not fail."""
    out = b"\x08" + varint.encode(invocation_id)
    for block in content:
        if isinstance(block, str):
            inner = span(0x0A, text(block))
        else:
            inner = span(0x12, span(0x0A, block[0]) + optional(0x12, text(block[1])))
        out += span(0x12, inner)
    if details_json:
        out += span(0x1A, details_json)
    if terminate:
        out += b"\x20\x01"
    return out


class Failure:
    """Why a call failed: `ToolFailure`."""

    __slots__ = ("details_json", "message", "reason", "retryable")

    def __init__(self, message: str, reason: str, *, retryable: bool = False, details_json: bytes = b"") -> None:
        self.message = message
        self.reason = reason
        self.retryable = retryable
        self.details_json = details_json


def failed(invocation_id: int, failure: Failure) -> bytes:
    """Encode a `Result` of a call that failed."""
    inner = optional(0x0A, text(failure.message))
    if failure.retryable:
        inner += b"\x10\x01"
    inner += optional(0x1A, text(failure.reason)) + optional(0x22, failure.details_json)
    return b"\x08" + varint.encode(invocation_id) + span(0x2A, inner)


def update(invocation_id: int, message: str, progress: float | None, total: float | None, data_json: bytes) -> bytes:
    """Encode an `Update`."""
    out = b"\x08" + varint.encode(invocation_id) + optional(0x12, text(message))
    if progress is not None:
        out += b"\x19" + struct.pack("<d", progress)
    if total is not None:
        out += b"\x21" + struct.pack("<d", total)
    return out + optional(0x2A, data_json)


def log(invocation_id: int, level: int, message: str, fields_json: bytes) -> bytes:
    """Encode a `Log`. The id is 0 for a line that belongs to no call."""
    return (
        number(0x08, invocation_id) + number(0x10, level) + optional(0x1A, text(message)) + optional(0x22, fields_json)
    )


def ready(
    protocol_version: int, sdk: str, tools: Iterable[bytes], max_concurrent_calls: int, version: str = ""
) -> bytes:
    """Encode a `Ready`; the tools are encoded definitions, `version` is the plugin's own."""
    out = number(0x08, protocol_version) + optional(0x12, text(sdk))
    out += b"".join(span(0x1A, tool) for tool in tools) + number(0x20, max_concurrent_calls)
    return out + optional(0x2A, text(version))


def text(value: str) -> bytes:
    """UTF-8 of a string. A lone surrogate, which UTF-8 can't hold, becomes a question mark."""
    return value.encode("utf-8", "replace")


def number(tag: int, value: int) -> bytes:
    """A number as a field. Nothing for 0, as proto3 has it."""
    return bytes((tag,)) + varint.encode(value) if value else b""


def span(tag: int, value: bytes) -> bytes:
    """Bytes, text or a message as a field."""
    return _head(tag, value) + value


def optional(tag: int, value: bytes) -> bytes:
    """Bytes or text as a field. Nothing when empty, as proto3 has it."""
    return _head(tag, value) + value if value else b""


def _head(tag: int, value: bytes) -> bytes:
    return bytes((tag,)) + varint.encode(len(value))


def _delimited(head: bytes, body: bytes) -> bytes:
    return varint.encode(len(head) + len(body)) + head + body
