"""Answers of the sidecar, read by a thread of its own so that Ctrl-C ends the wait for it and nothing else.

Ctrl-C raises `KeyboardInterrupt` between any two steps of the main thread. Within grpcio that is also where a stream's
record and its core differ for a moment: then the channel's thread dies of a `KeyError`, and closing the channel waits
for ever (1 of 400 interrupted `journal tail -f`). Here the main thread waits for a queue alone, which is one step.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

_WAKE_S = 0.2
"""How often a wait looks for a signal: one that came just before it began would not end it."""
_LEAVE_S = 1.0
"""For the thread to see that its stream was cancelled. It holds nobody up if it doesn't."""


@dataclass(frozen=True, slots=True)
class _End:
    error: BaseException | None


def read_by_thread(begin: Callable[[], Any]) -> Generator[Any]:
    """Yield what the stream that `begin` returns yields; each is read once it is asked for, and none ahead.

    Leaving the iterator cancels the stream. What `begin` or the stream raises is raised here.
    """
    reader = _Reader(begin)
    try:
        while not isinstance(answer := reader.read(), _End):
            yield answer
        if answer.error is not None:
            raise answer.error
    finally:
        reader.leave()


def answer_by_thread(begin: Callable[[], Any]) -> Any:  # noqa: ANN401 - a message of any kind
    """The answer of the one call whose future `begin` returns. An interrupt cancels the call."""
    with contextlib.closing(read_by_thread(lambda: _Answer(begin()))) as answers:
        return next(answers)


class _Answer:
    """The answer of a future, as a stream of one message."""

    def __init__(self, future: Any) -> None:  # noqa: ANN401 - gRPC's
        self._future = future

    def __iter__(self) -> Iterator[Any]:
        yield self._future.result()

    def cancel(self) -> None:
        self._future.cancel()


class _Reader:
    def __init__(self, begin: Callable[[], Any]) -> None:
        self._begin = begin
        self._wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Whether one more is wanted, or none any more."""
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stream: Any = None
        self._left = False
        self._thread = threading.Thread(target=self._serve, name="stream", daemon=True)
        self._thread.start()

    def read(self) -> Any:  # noqa: ANN401 - a stream's message of any kind, or its end
        self._wanted.put(True)
        while True:
            with contextlib.suppress(queue.Empty):
                return self._answers.get(timeout=_WAKE_S)

    def leave(self) -> None:
        self._left = True
        self._wanted.put(False)
        self._cancel()
        self._thread.join(_LEAVE_S)

    def _serve(self) -> None:
        try:
            self._stream = self._begin()
            if self._left:  # while it began
                self._cancel()
            messages = iter(self._stream)
            while self._wanted.get():
                self._answers.put(next(messages))
        except StopIteration:
            self._answers.put(_End(None))
        except BaseException as error:  # noqa: BLE001 - it is raised where the stream is read
            self._answers.put(_End(error))

    def _cancel(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
