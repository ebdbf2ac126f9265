"""Collects the values that one call says it took from outside, within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fumehood_sdk.wire.recorded_values import RecordedValue

from fumehood_server.model.taken_values import TakenValues

if TYPE_CHECKING:
    from fumehood.v1 import plugin_pb2

MAX_VALUES = 10_000
"""Of one call (plugin.proto)."""
MAX_FRAMES = 20_000
"""Of one call (plugin.proto): one for each value and one for each request, which no SDK needs."""
MAX_NAME_CHARACTERS = 16_384
"""A URL has 8 KiB at most; a kind has 64 bytes."""


class ValueCollector:
    """The values of one call. What the plugin says of them is hostile."""

    __slots__ = ("_bytes", "_frames", "_left_out", "_max_bytes", "_values")

    def __init__(self, max_bytes: int) -> None:
        """Keep `max_bytes` of frames, and half as much again for what frames add to values. 0: none."""
        self._max_bytes = max_bytes + max_bytes // 2
        self._bytes = 0
        self._frames = 0
        self._left_out = 0
        self._values: list[RecordedValue] = []

    def keeps(self, message: plugin_pb2.RecordedValues, size: int) -> bool:
        """Whether the values of a frame of `size` bytes are kept. Others need not be scrubbed."""
        return (
            self._frames < MAX_FRAMES
            and self._bytes + size <= self._max_bytes
            and len(self._values) + len(message.values) <= MAX_VALUES
        )

    def take(self, message: plugin_pb2.RecordedValues, size: int) -> bool:
        """Take a frame of `size` bytes, without secrets. False: there are more frames than anybody needs."""
        keeps = self.keeps(message, size)
        self._frames += 1
        if self._frames > MAX_FRAMES:
            return False
        if not self._max_bytes:
            return True
        self._left_out += message.left_out
        self._bytes += size
        if not keeps:
            self._left_out += len(message.values)
            return True
        self._values += [
            RecordedValue(
                each.kind[:64],
                each.name[:MAX_NAME_CHARACTERS],
                each.number,
                each.value_json,
                each.error_json,
            )
            for each in message.values
        ]
        return True

    def taken(self) -> TakenValues | None:
        """All of them. None: the call took nothing, or nobody asked."""
        return TakenValues(tuple(self._values), min(self._left_out, 2**31)) if self._values or self._left_out else None
