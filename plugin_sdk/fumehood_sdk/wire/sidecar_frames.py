# ruff: noqa: PLR2004 - the numbers are the tags of fields; a name for each would be one more thing to look up
"""Decodes what the sidecar sends: `HostFrame` of fumehood/v1/plugin.proto.

Unknown fields are skipped, so that a newer sidecar can say more.
"""

from __future__ import annotations

from collections.abc import Callable

from fumehood_sdk.wire import varint
from fumehood_sdk.wire.fields import LENGTH_DELIMITED, decode_duration, decode_text, skip_field, value_span
from fumehood_sdk.wire.sidecar_answers import ANSWER_DECODERS, Answer


class Hello:
    """Opens the exchange: versions, bounds and grants."""

    __slots__ = (
        "max_concurrent_calls",
        "max_frame_bytes",
        "plugin",
        "protocol_versions",
        "readable_paths",
        "secrets",
        "side_effects",
        "takes_inferences",
        "writable_paths",
    )

    def __init__(self) -> None:
        self.protocol_versions: list[int] = []
        self.plugin = ""
        self.side_effects = 0
        self.max_frame_bytes = 0
        self.max_concurrent_calls = 0
        self.readable_paths: list[str] = []
        self.writable_paths: list[str] = []
        self.takes_inferences = 0
        """Not 0: calls may ask a model for answers."""
        self.secrets: list[tuple[str, bytes]] = []
        """Names and values."""


class Invoke:
    """Starts a call, or asks for its arguments to be prepared."""

    __slots__ = (
        "arguments_json",
        "attempt",
        "call_id",
        "context",
        "invocation_id",
        "max_recorded_bytes",
        "prepares",
        "replay",
        "timeout_s",
        "tool",
        "traceparent",
        "tracestate",
    )

    def __init__(self) -> None:
        self.invocation_id = 0
        self.tool = ""
        self.arguments_json = b""
        self.call_id = ""
        self.attempt = 0
        self.timeout_s = 0.0
        self.context = b""
        """The `CallContext`, still encoded: few tools ask for it."""
        self.max_recorded_bytes = 0
        self.replay: bytes | None = None
        """The `Replay`, still encoded. None: the call runs for real."""
        self.traceparent = b""
        self.tracestate = b""
        self.prepares = False
        """Whether it is a `PrepareArguments`, whose fields have the numbers of those of `Invoke`."""


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


def decode_frame(data: bytes) -> HostFrame | None:
    """Decode one frame. None for a kind of frame that this version does not know.

    Raises:
        WireError: the bytes are not a message of protobuf's encoding.
    """
    frame: HostFrame | None = None
    position, size = 0, len(data)
    while position < size:
        tag = data[position]
        decoder = _FRAME_DECODERS.get(tag)
        if decoder is not None:
            start, position = value_span(data, position + 1, size)
            frame = decoder(data, start, position)
        else:
            position = skip_field(data, position, size)
    return frame


def decode_call_context(data: bytes) -> dict[str, str]:
    """Decode a `CallContext` into its fields by name. Absent ones are empty."""
    out = dict.fromkeys(CONTEXT_FIELDS, "")
    position, size = 0, len(data)
    while position < size:
        number, kind = data[position] >> 3, data[position] & 7
        if kind == LENGTH_DELIMITED and 1 <= number <= len(CONTEXT_FIELDS):
            start, position = value_span(data, position + 1, size)
            out[CONTEXT_FIELDS[number - 1]] = decode_text(data, start, position)
        else:
            position = skip_field(data, position, size)
    return out


def _decode_invoke(data: bytes, position: int, end: int) -> Invoke:
    # On the path of each call: one byte a tag, since the field numbers are below 16.
    frame = Invoke()
    while position < end:
        tag = data[position]
        if tag == 0x08:
            frame.invocation_id, position = varint.decode(data, position + 1, end)
        elif tag in _INVOKE_NUMBERS:
            value, position = varint.decode(data, position + 1, end)
            setattr(frame, _INVOKE_NUMBERS[tag], value)
        elif tag in _INVOKE_SPANS:
            start, position = value_span(data, position + 1, end)
            if tag == 0x12:
                frame.tool = decode_text(data, start, position)
            elif tag == 0x22:
                frame.call_id = decode_text(data, start, position)
            elif tag == 0x32:
                frame.timeout_s = decode_duration(data, start, position)
            else:
                setattr(frame, _INVOKE_BYTES[tag], data[start:position])
        else:
            position = skip_field(data, position, end)
    return frame


def _decode_prepare_arguments(data: bytes, position: int, end: int) -> Invoke:
    frame = _decode_invoke(data, position, end)
    frame.prepares = True
    return frame


def _decode_hello(data: bytes, position: int, end: int) -> Hello:
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
            start, position = value_span(data, position + 1, end)
            if tag == 0x0A:
                while start < position:
                    value, start = varint.decode(data, start, position)
                    frame.protocol_versions.append(value)
            elif tag == 0x4A:
                frame.secrets.append(_decode_secret(data, start, position))
            elif tag in (0x3A, 0x42):
                getattr(frame, _HELLO_SPANS[tag]).append(decode_text(data, start, position))
            else:
                setattr(frame, _HELLO_SPANS[tag], decode_text(data, start, position))
        else:
            position = skip_field(data, position, end)
    return frame


def _decode_secret(data: bytes, position: int, end: int) -> tuple[str, bytes]:
    name, value = "", b""
    while position < end:
        tag = data[position]
        if tag in (0x0A, 0x12):
            start, position = value_span(data, position + 1, end)
            if tag == 0x0A:
                name = decode_text(data, start, position)
            else:
                value = data[start:position]
        else:
            position = skip_field(data, position, end)
    return name, value


def _decode_cancel(data: bytes, position: int, end: int) -> Cancel:
    frame = Cancel()
    while position < end:
        tag = data[position]
        if tag == 0x08:
            frame.invocation_id, position = varint.decode(data, position + 1, end)
        elif tag == 0x10:
            frame.reason, position = varint.decode(data, position + 1, end)
        elif tag == 0x1A:
            start, position = value_span(data, position + 1, end)
            frame.grace_s = decode_duration(data, start, position)
        else:
            position = skip_field(data, position, end)
    return frame


def _decode_shutdown(data: bytes, position: int, end: int) -> Shutdown:
    frame = Shutdown()
    while position < end:
        if data[position] == 0x0A:
            start, position = value_span(data, position + 1, end)
            frame.grace_s = decode_duration(data, start, position)
        else:
            position = skip_field(data, position, end)
    return frame


_FRAME_DECODERS: dict[int, Callable[[bytes, int, int], HostFrame]] = {
    0x0A: _decode_hello,
    0x12: _decode_invoke,
    0x1A: _decode_cancel,
    0x22: _decode_shutdown,
    0x42: _decode_prepare_arguments,
    **ANSWER_DECODERS,
}
"""By the tag of the frame in `HostFrame`."""
_INVOKE_NUMBERS = {0x28: "attempt", 0x40: "max_recorded_bytes"}
_INVOKE_BYTES = {0x1A: "arguments_json", 0x3A: "context", 0x4A: "replay", 0x52: "traceparent", 0x5A: "tracestate"}
_INVOKE_SPANS = frozenset((0x12, 0x22, 0x32, *_INVOKE_BYTES))
_HELLO_NUMBERS = {
    0x08: "protocol_versions",
    0x20: "side_effects",
    0x28: "max_frame_bytes",
    0x30: "max_concurrent_calls",
    0x50: "takes_inferences",
}
_HELLO_SPANS = {
    0x0A: "protocol_versions",
    0x1A: "plugin",
    0x3A: "readable_paths",
    0x42: "writable_paths",
    0x4A: "secrets",
}
