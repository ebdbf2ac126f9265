"""Encodes what a plugin sends: `PluginFrame` of fumehood/v1/plugin.proto, its length before it."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from fumehood_sdk.wire import varint
from fumehood_sdk.wire.fields import (
    bytes_field,
    encode_text,
    field_head,
    number_field,
    optional_bytes_field,
    text_field,
)

READY, UPDATE, LOG, RESULT = 0x0A, 0x12, 0x1A, 0x22
"""Tags of the frames."""

DEBUG, INFO, WARNING, ERROR = 1, 2, 3, 4
"""Levels of a log line."""


class Annotations(NamedTuple):
    """For whom a block is and how important: `ContentAnnotations`."""

    audience: tuple[str, ...] = ()
    """"user", "assistant" or both."""
    priority: float | None = None
    """From 0, optional, to 1, required."""
    last_modified: str = ""


class DescribedBlock:
    """A block of which more is said than what it holds."""

    __slots__ = ("annotations", "block", "resource_uri", "text_media_type")

    def __init__(
        self,
        block: str | tuple[bytes, str],
        *,
        resource_uri: str = "",
        text_media_type: str = "",
        annotations: Annotations | None = None,
    ) -> None:
        """`resource_uri` is of the resource that it holds or, in a link, names."""
        self.block = block
        self.resource_uri = resource_uri
        self.text_media_type = text_media_type
        self.annotations = annotations


Block = str | tuple[bytes, str] | DescribedBlock
"""One block of content: text, or bytes with their media type, with or without more that is said of it."""

Sent = tuple[tuple[Block, ...], bytes, bool]
"""A result: its content, its details as JSON, and the hint to stop."""


def delimited_frame(tag: int, body: bytes) -> bytes:
    """Wrap an encoded `Ready`, `Update`, `Log` or `Result` into a frame with its length before it."""
    head = field_head(tag, body)
    return varint.encode(len(head) + len(body)) + head + body


def frame_size_bytes(body: bytes) -> int:
    """Size of the frame around an encoded body, its length prefix not counted: what `max_frame_bytes` bounds."""
    return 1 + len(varint.encode(len(body))) + len(body)


def encode_result(invocation_id: int, content: Iterable[Block], details_json: bytes, *, terminate: bool) -> bytes:
    """Encode a `Result` of a call that did not fail."""
    out = b"\x08" + varint.encode(invocation_id)
    for block in content:
        out += bytes_field(0x12, _encode_block(block))
    if details_json:
        out += bytes_field(0x1A, details_json)
    if terminate:
        out += b"\x20\x01"
    return out


def _encode_block(block: Block) -> bytes:
    if isinstance(block, str):
        return bytes_field(0x0A, encode_text(block))
    if not isinstance(block, DescribedBlock):
        return bytes_field(0x12, bytes_field(0x0A, block[0]) + text_field(0x12, block[1]))
    out = _encode_block(block.block) + text_field(0x1A, block.resource_uri) + text_field(0x22, block.text_media_type)
    said = block.annotations
    if said is None:
        return out
    inner = b"".join(bytes_field(0x0A, encode_text(each)) for each in said.audience)
    if said.priority is not None:
        inner += b"\x11" + struct.pack("<d", said.priority)
    return out + bytes_field(0x2A, inner + text_field(0x1A, said.last_modified))


MAX_FAILURE_CHARACTERS = 4096
"""What fumehood/v1/plugin.proto keeps of a failure's message."""


def cut_failure_message(message: str) -> str:
    """A failure's message, as much of it as is kept."""
    return message if len(message) <= MAX_FAILURE_CHARACTERS else message[: MAX_FAILURE_CHARACTERS - 1] + "…"


class Failure:
    """Why a call failed: `ToolFailure`, and what is shown beside it."""

    __slots__ = ("content", "details_json", "message", "reason", "retryable")

    def __init__(
        self,
        message: str,
        reason: str,
        *,
        retryable: bool = False,
        details_json: bytes = b"",
        content: tuple[Block, ...] = (),
    ) -> None:
        """`content` is shown in place of the message, for those who read no errors. Empty: the message is."""
        self.content = content
        self.message = message
        self.reason = reason
        self.retryable = retryable
        self.details_json = details_json


def encode_failure(invocation_id: int, failure: Failure) -> bytes:
    """Encode a `Result` of a call that failed."""
    inner = text_field(0x0A, failure.message)
    if failure.retryable:
        inner += b"\x10\x01"
    inner += text_field(0x1A, failure.reason) + optional_bytes_field(0x22, failure.details_json)
    content = b"".join(bytes_field(0x12, _encode_block(block)) for block in failure.content)
    return b"\x08" + varint.encode(invocation_id) + content + bytes_field(0x2A, inner)


def encode_update(
    invocation_id: int,
    message: str,
    progress: float | None,
    total: float | None,
    data_json: bytes,
    *,
    unit: str = "",
) -> bytes:
    """Encode an `Update`."""
    out = b"\x08" + varint.encode(invocation_id) + text_field(0x12, message)
    if progress is not None:
        out += b"\x19" + struct.pack("<d", progress)
    if total is not None:
        out += b"\x21" + struct.pack("<d", total)
    return out + optional_bytes_field(0x2A, data_json) + text_field(0x32, unit)


def encode_log(invocation_id: int, level: int, message: str, fields_json: bytes) -> bytes:
    """Encode a `Log`. The id is 0 for a line that belongs to no call."""
    out = number_field(0x08, invocation_id) + number_field(0x10, level)
    return out + text_field(0x1A, message) + optional_bytes_field(0x22, fields_json)


def encode_ready(
    protocol_version: int, sdk: str, tools: Iterable[bytes], max_concurrent_calls: int, version: str = ""
) -> bytes:
    """Encode a `Ready`; the tools are encoded definitions, `version` is the plugin's own."""
    out = number_field(0x08, protocol_version) + text_field(0x12, sdk)
    out += b"".join(bytes_field(0x1A, tool) for tool in tools) + number_field(0x20, max_concurrent_calls)
    return out + text_field(0x2A, version)
