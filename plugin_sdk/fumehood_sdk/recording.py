"""Record and replay of the values that a call takes from outside: clock, side effects, HTTP, secrets.

While a call runs for real, each value, or the error in its place, is recorded by kind, name and number. When it is run
again from its record, each comes from there and nothing is performed. No lock is taken: `Cancelled` may be raised in a
synchronous tool's thread at any step.
"""

from __future__ import annotations

import itertools
from collections import deque
from contextvars import ContextVar
from typing import TYPE_CHECKING, Generic, TypeVar

from fumehood_sdk.errors import ReplayDiverged
from fumehood_sdk.recorded_errors import describe_error, rebuild_error
from fumehood_sdk.wire.recorded_values import RecordedValue, encode_frame, encode_value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from random import Random
    from typing import Any, Self

    from fumehood_sdk.call import Call

NOW, SIDE_EFFECT, HTTP, SECRET = "now", "side_effect", "http", "secret"
"""Kinds of values."""
MAX_VALUES = 10_000
"""Of one call, as the sidecar has it (plugin.proto)."""
FLUSH_VALUES = 256
FLUSH_BYTES = 32_768
"""Values that wait for the next frame: one write(2) costs as much as a call."""

_T = TypeVar("_T")
_within_side_effect: ContextVar[bool] = ContextVar("within_side_effect", default=False)
"""What a side effect takes from outside is part of it: on replay its function isn't run."""


class Recording:
    """What one call took from outside. Made when it takes the first value."""

    __slots__ = ("_bytes", "_call", "_count", "_left_out", "_numbers", "_pending", "_random", "_replayed", "asked")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._numbers: dict[tuple[str, str], Iterator[int]] = {}
        self._pending: deque[bytes] = deque()
        self._bytes = 0
        self._count = 0
        self._left_out = 0
        self._random: Random | None = None
        self._replayed: dict[tuple[str, str, int], RecordedValue] | None = None
        self.asked: list[tuple[str, str, int]] = []
        """In a replay: what was asked for, in order."""
        if call.replay is not None:
            self._replayed = {(each.kind, each.name, each.number): each for each in call.replay}

    @property
    def replaying(self) -> bool:
        """Whether values come from the record."""
        return self._replayed is not None

    def random(self) -> Random:
        """The call's generator; within a side effect one that nothing is known of."""
        from random import Random  # noqa: PLC0415 - few tools need it

        if _within_side_effect.get():
            return Random()  # noqa: S311 - says `Context.random`
        if self._random is None:
            self._random = Random(f"{self._call.call_id}\n{self._call.tool.name}")  # noqa: S311 - likewise
        return self._random

    def begin(self, kind: str, name: str) -> RecordedValue:
        """Number a value that is about to be taken.

        Returns what was recorded of it, in a replay; else it is empty.

        Raises:
            ReplayDiverged: nothing was recorded of it.
        """
        number = next(self._numbers.setdefault((kind, name), itertools.count(1)))
        value = RecordedValue(kind, name, number)
        if self._replayed is None:
            return value
        self.asked.append((kind, name, number))
        self.put(value)
        found = self._replayed.get((kind, name, number))
        if found is None:
            raise ReplayDiverged(f"the record has no {kind} {name} number {number}".replace("  ", " "))
        return found

    def put(self, value: RecordedValue) -> None:
        """Record a value, within the bounds: the sidecar is told how many are left out."""
        encoded = encode_value(value)
        if self._count >= MAX_VALUES or self._bytes + len(encoded) > self._call.max_recorded_bytes:
            self._left_out += 1
            return
        self._count += 1
        self._bytes += len(encoded)
        self._pending.append(encoded)
        if len(self._pending) >= FLUSH_VALUES or len(encoded) >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what waits. Before anything that may never come back."""
        if self._pending:
            self._call.sink.write_values(self._call, self.take_frames())

    def take_frames(self) -> bytes:
        """What waits, as frames with their lengths before them. Whoever takes them sends them."""
        frames, taken, size = b"", list[bytes](), 0
        while self._pending:
            try:
                encoded = self._pending.popleft()
            except IndexError:  # another thread took it
                break
            if taken and size + len(encoded) > FLUSH_BYTES:
                frames += encode_frame(self._call.invocation_id, taken, 0)
                taken, size = [], 0
            taken.append(encoded)
            size += len(encoded)
        left_out, self._left_out = self._left_out, 0
        if taken or left_out:
            frames += encode_frame(self._call.invocation_id, taken, left_out)
        return frames


def recording_of(call: Call) -> Recording:
    """The recording of a call."""
    found: Recording | None = call.recording
    if found is None:
        found = call.recording = Recording(call)
    return found


class Codec(Generic[_T]):
    """How a value is written as JSON for the record, and read back."""

    __slots__ = ("decode", "encode", "leaves_process")

    def __init__(
        self, encode: Callable[[_T], str], decode: Callable[[RecordedValue], _T], *, leaves_process: bool = True
    ) -> None:
        """`leaves_process` says that taking it may never come back, so that what waits is sent before."""
        self.encode = encode
        self.decode = decode
        self.leaves_process = leaves_process


class _Taking:
    """Records what happens in a `with`: the value that is set within it, or the exception that leaves it."""

    __slots__ = ("_begun", "_recording", "_token", "value_json")

    def __init__(self, recording: Recording, begun: RecordedValue) -> None:
        self._recording = recording
        self._begun = begun
        self._token: Any = None
        self.value_json = ""

    def __enter__(self) -> Self:
        if self._begun.kind is SIDE_EFFECT:
            self._token = _within_side_effect.set(True)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._token is not None:
            _within_side_effect.reset(self._token)
        if error is None:
            self._recording.put(self._begun._replace(value_json=self.value_json))
        elif isinstance(error, Exception):
            self._recording.put(self._begun._replace(error_json=describe_error(error)))


def take(call: Call, kind: str, name: str, perform: Callable[[], _T], codec: Codec[_T]) -> _T:
    """Take a value from outside by `perform` and record it; in a replay, take it from the record.

    Raises:
        ReplayDiverged: the record has none.
    """
    if _is_off(call):
        return perform()
    recording = recording_of(call)
    begun = recording.begin(kind, name)
    if recording.replaying:
        return _replayed(begun, codec)
    if codec.leaves_process:
        recording.flush()
    with _Taking(recording, begun) as taking:
        taken = perform()
        taking.value_json = codec.encode(taken)
    return taken


async def take_async(call: Call, kind: str, name: str, perform: Callable[[], Awaitable[_T]], codec: Codec[_T]) -> _T:
    """The same, for asynchronous tools."""
    if _is_off(call):
        return await perform()
    recording = recording_of(call)
    begun = recording.begin(kind, name)
    if recording.replaying:
        return _replayed(begun, codec)
    if codec.leaves_process:
        recording.flush()
    with _Taking(recording, begun) as taking:
        taken = await perform()
        taking.value_json = codec.encode(taken)
    return taken


def _is_off(call: Call) -> bool:
    return (call.replay is None and not call.max_recorded_bytes) or _within_side_effect.get()


def _replayed(found: RecordedValue, codec: Codec[_T]) -> _T:
    if found.error_json:
        raise rebuild_error(found.error_json)
    return codec.decode(found)
