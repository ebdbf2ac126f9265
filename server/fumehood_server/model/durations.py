"""Seconds to and from `google.protobuf.Duration`."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

_NANOS = 1_000_000_000


def set_duration(duration: Duration, seconds: float) -> None:
    """Fill in a message's field. A time that ran backwards is none."""
    duration.seconds, duration.nanos = divmod(max(round(seconds * _NANOS), 0), _NANOS)


def duration_s(message: Duration) -> float:
    """A duration in seconds."""
    return message.seconds + message.nanos / _NANOS
