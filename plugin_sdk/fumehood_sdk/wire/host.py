# ruff: noqa: PLR2004 - the numbers are the tags of fields; a name for each would be one more thing to look up
"""Frames from the sidecar: `HostFrame` of fumehood/v1/plugin.proto, decoded.

Unknown fields are skipped, so that a newer sidecar can say more.
"""

from __future__ import annotations

from collections.abc import Callable

from fumehood_sdk.errors import WireError
from fumehood_sdk.wire import varint

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_NANOS_PER_S = 1e9


class Hello:
    """Opens the exchange."""

    __slots__ = (
        "max_concurrent_calls",
        "max_frame_bytes",
        "plugin",
        "protocol_versions",
        "readable_paths",
        "side_effects",
        "sidecar_version",
        "writable_paths",
    )

    def __init__(self) -> None:
        self.protocol_versions: list[int] = []
        self.sidecar_version = ""
        self.plugin = ""
        self.side_effects = 0
        self.max_frame_bytes = 0
        self.max_concurrent_calls = 0
        self.readable_paths: list[str] = []
        self.writable_paths: list[str] = []


class Invoke:
    """Starts a call."""

    __slots__ = ("arguments_json", "attempt", "call_id", "context", "invocation_id", "timeout_s", "tool")

    def __init__(self) -> None:
        self.invocation_id = 0
        self.tool = ""
        self.arguments_json = b""
        self.call_id = ""
        self.attempt = 0
        self.timeout_s = 0.0
        self.context = b""
        """The `CallContext`, still encoded: few tools ask for it."""


class Cancel:
    """Asks for the end of a call."""

    __slots__ = ("grace_s", "invocation_id", "reason")

    def __init__(self) -> None:
        self.invocation_id = 0
        self.reason = 0
        self.grace_s = 0.0


class Shutdown:
    """Asks the plugin to finish and exit."""

    __slots__ = ("grace_s",)

    def __init__(self) -> None:
        self.grace_s = 0.0


class Answer:
    """Answers what a call asked of the sidecar. What kinds there are is in `answers`."""

    __slots__ = ("invocation_id", "request_id")

    def __init__(self) -> None:
        self.invocation_id = 0
        self.request_id = 0


HostFrame = Hello | Invoke | Cancel | Shutdown | Answer

CONTEXT_FIELDS = (
    "request_id",
    "session_id",
    "trace_id",
    "span_id",
    "parent_span_id",
    "turn_id",
    "step_name",
    "caused_by",
)
"""The fields of `CallContext` in the order of their numbers, from 1."""


def decode(data: bytes) -> HostFrame | None:
    """Decode one frame. None for a kind of frame that this version does not know.

    Raises:
        WireError: the bytes are not a message of protobuf's encoding.
    """
    frame: HostFrame | None = None
    position, size = 0, len(data)
    while position < size:
        tag = data[position]
        if tag in _FRAMES:
            start, position = span(data, position + 1, size)
            frame = _FRAMES[tag](data, start, position)
        elif tag in _ANSWERS:
            from fumehood_sdk.wire.answers import DECODERS  # noqa: PLC0415 - few plugins ask for anything

            start, position = span(data, position + 1, size)
            frame = DECODERS[tag](data, start, position)
        else:
            position = skip(data, position, size)
    return frame


def decode_context(data: bytes) -> dict[str, str]:
    """Decode a `CallContext` into its fields by name. Absent ones are empty."""
    out = dict.fromkeys(CONTEXT_FIELDS, "")
    position, size = 0, len(data)
    while position < size:
        number, kind = data[position] >> 3, data[position] & 7
        if kind == _LENGTH and 1 <= number <= len(CONTEXT_FIELDS):
            start, position = span(data, position + 1, size)
            out[CONTEXT_FIELDS[number - 1]] = text(data, start, position)
        else:
            position = skip(data, position, size)
    return out


def _invoke(data: bytes, position: int, end: int) -> Invoke:
    # On the path of each call: one byte a tag, since the field numbers are below 16.
    frame = Invoke()
    while position < end:
        tag = data[position]
        if tag == 0x08:
            frame.invocation_id, position = varint.decode(data, position + 1, end)
        elif tag == 0x28:
            frame.attempt, position = varint.decode(data, position + 1, end)
        elif tag in _INVOKE_SPANS:
            start, position = span(data, position + 1, end)
            if tag == 0x12:
                frame.tool = text(data, start, position)
            elif tag == 0x1A:
                frame.arguments_json = data[start:position]
            elif tag == 0x22:
                frame.call_id = text(data, start, position)
            elif tag == 0x32:
                frame.timeout_s = _duration(data, start, position)
            else:
                frame.context = data[start:position]
        else:
            position = skip(data, position, end)
    return frame


def _hello(data: bytes, position: int, end: int) -> Hello:
    frame = Hello()
    while position < end:
        tag = data[position]
        if tag in _HELLO_NUMBERS:
            value, position = varint.decode(data, position + 1, end)
            if tag == 0x08:
                frame.protocol_versions.append(value)
            else:
                setattr(frame, _HELLO_NUMBERS[tag], value)
        elif tag in _HELLO_SPANS:
            start, position = span(data, position + 1, end)
            if tag == 0x0A:
                while start < position:
                    value, start = varint.decode(data, start, position)
                    frame.protocol_versions.append(value)
            elif tag in (0x3A, 0x42):
                getattr(frame, _HELLO_SPANS[tag]).append(text(data, start, position))
            else:
                setattr(frame, _HELLO_SPANS[tag], text(data, start, position))
        else:
            position = skip(data, position, end)
    return frame


def _cancel(data: bytes, position: int, end: int) -> Cancel:
    frame = Cancel()
    while position < end:
        tag = data[position]
        if tag == 0x08:
            frame.invocation_id, position = varint.decode(data, position + 1, end)
        elif tag == 0x10:
            frame.reason, position = varint.decode(data, position + 1, end)
        elif tag == 0x1A:
            start, position = span(data, position + 1, end)
            frame.grace_s = _duration(data, start, position)
        else:
            position = skip(data, position, end)
    return frame


def _shutdown(data: bytes, position: int, end: int) -> Shutdown:
    frame = Shutdown()
    while position < end:
        if data[position] == 0x0A:
            start, position = span(data, position + 1, end)
            frame.grace_s = _duration(data, start, position)
        else:
            position = skip(data, position, end)
    return frame


_FRAMES: dict[int, Callable[[bytes, int, int], HostFrame]] = {
    0x0A: _hello,
    0x12: _invoke,
    0x1A: _cancel,
    0x22: _shutdown,
}
_ANSWERS = frozenset((0x2A, 0x32, 0x3A))
_INVOKE_SPANS = frozenset((0x12, 0x1A, 0x22, 0x32, 0x3A))
_HELLO_NUMBERS = {
    0x08: "protocol_versions",
    0x20: "side_effects",
    0x28: "max_frame_bytes",
    0x30: "max_concurrent_calls",
}
_HELLO_SPANS = {
    0x0A: "protocol_versions",
    0x12: "sidecar_version",
    0x1A: "plugin",
    0x3A: "readable_paths",
    0x42: "writable_paths",
}


def _duration(data: bytes, position: int, end: int) -> float:
    seconds = nanos = 0
    while position < end:
        tag = data[position]
        if tag == 0x08:
            seconds, position = varint.decode(data, position + 1, end)
        elif tag == 0x10:
            nanos, position = varint.decode(data, position + 1, end)
        else:
            position = skip(data, position, end)
    return _signed(seconds) + _signed(nanos) / _NANOS_PER_S


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def text(data: bytes, start: int, end: int) -> str:
    """A string.

    Raises:
        WireError: it is not UTF-8.
    """
    try:
        return str(data[start:end], "utf-8")
    except UnicodeDecodeError as error:
        raise WireError("a string is not UTF-8") from error


def span(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Start and end of a value whose length comes first.

    Raises:
        WireError: it goes on behind `end`.
    """
    if position < end and data[position] < varint.CONTINUES:
        start = position + 1
        stop = start + data[position]
    else:
        length, start = varint.decode(data, position, end)
        stop = start + length
    if stop > end:
        raise WireError("a field is longer than its message")
    return start, stop


def skip(data: bytes, position: int, end: int) -> int:
    """The position behind a field that is not known, which begins with its tag at `position`.

    Raises:
        WireError: it is malformed.
    """
    tag, position = varint.decode(data, position, end)
    kind = tag & 7
    if tag >> 3 == 0:
        raise WireError("a field has no number")
    if kind == _VARINT:
        return varint.decode(data, position, end)[1]
    if kind == _LENGTH:
        return span(data, position, end)[1]
    if kind not in (_FIXED64, _FIXED32):
        # Groups (kinds 3 and 4) are of proto2 alone and not on this wire.
        raise WireError(f"a field is of the unknown wire type {kind}")
    position += 8 if kind == _FIXED64 else 4
    if position > end:
        raise WireError("a field is longer than its message")
    return position
