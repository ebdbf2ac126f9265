"""The events of a run, over as many connections as it takes, read by a thread into a bounded queue.

The run goes on at the sidecar while a connection is lost. It is joined again behind the last event that was seen, and
gone on with by a sidecar that was started anew: by its record alone, or what it has done would be done once more.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from dataclasses import dataclass
from typing import Self

from fumehood.v1 import orchestration_service_pb2 as pb

from fumehood_server.cli.client import SidecarClient
from fumehood_server.cli.failure import CommandError, ExitStatus
from fumehood_server.model.retries import backoff_s

RECONNECT_S = 60.0
"""How long a lost connection is tried again: for another network, or the sidecar's restart."""
QUEUED = 256
"""Events that wait to be shown. A reader that is slower slows the stream, and may miss events then."""
_PUT_S = 0.2
"""How often a full queue is looked at, so that nobody is left behind when the command leaves."""
_AGAIN = frozenset({"UNREACHABLE", "DRAINING", "JOURNAL_UNAVAILABLE", "RUN_ELSEWHERE"})
"""Why a stream breaks off that can be gone on with."""


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """It is being made again."""

    why: str


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """Nothing more comes."""

    error: CommandError | None
    """None: the run has ended, and its end was told."""


Item = pb.StreamRunResponse | ConnectionLost | StreamEnded


class RunStream:
    """A context manager. `woken` is readable once there may be something to `take`."""

    def __init__(self, client: SidecarClient, request: pb.SystemRequest) -> None:
        """Nothing is sent before the context is entered."""
        self.woken, self._wake = os.pipe()
        self.has_begun = False
        """Whether the sidecar has admitted the run."""
        self.is_own = False
        """Whether this has begun it, rather than joined it."""
        self._client = client
        self._request = request
        self._after = 0
        self._items: queue.Queue[Item] = queue.Queue(QUEUED)
        self._leaves = threading.Event()
        self._thread = threading.Thread(target=self._read, name="run-stream", daemon=True)

    def __enter__(self) -> Self:
        """Send the request."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the stream: the run goes on. The thread ends once its client is closed, if not before."""
        self._leaves.set()

    def take(self) -> Item | None:
        """The next. None: there is none yet."""
        with contextlib.suppress(queue.Empty):
            return self._items.get_nowait()
        return None

    def _read(self) -> None:
        try:
            self._read_on()
        except CommandError as error:
            self._put(StreamEnded(error))
        else:
            self._put(StreamEnded(None))

    def _read_on(self) -> None:
        given_up_at, failures = 0.0, 0
        while True:
            try:
                for event in self._client.stream_run(self._request, after=self._after, join_only=self.has_begun):
                    given_up_at, failures = 0.0, 0
                    self._note(event)
                    self._put(event)
                    if event.HasField("finished"):
                        return
                raise _cut_short()
            except CommandError as error:
                if self._leaves.is_set() or not self.has_begun or error.code not in _AGAIN:
                    raise _unknown(error) if self.has_begun and error.code == "RUN_NOT_FOUND" else error from error
                if not failures:
                    given_up_at = time.monotonic() + RECONNECT_S
                    self._put(ConnectionLost(error.what))
                failures += 1
                if time.monotonic() >= given_up_at or self._leaves.wait(backoff_s(failures, None)):
                    raise _given_up(error) from error

    def _note(self, event: pb.StreamRunResponse) -> None:
        """What is needed to go on behind this event."""
        if event.HasField("started"):
            if not self.has_begun:
                self.has_begun, self.is_own = True, not event.started.joined
            if not event.started.joined:
                self._after = 0  # a sidecar that goes on from the record counts anew
        elif event.sequence:
            self._after = event.sequence

    def _put(self, item: Item) -> None:
        while not self._leaves.is_set():
            try:
                self._items.put(item, timeout=_PUT_S)
            except queue.Full:
                continue
            os.write(self._wake, b"x")
            return


def _cut_short() -> CommandError:
    return CommandError(
        "the stream ended before the run did",
        "The sidecar's log says more.",
        code="STREAM_BROKEN",
        status=ExitStatus.UNREACHABLE,
    )


def _given_up(error: CommandError) -> CommandError:
    return CommandError(
        f"{error.what}, and could not be made again within {RECONNECT_S:g} s",
        error.todo,
        code=error.code,
        status=ExitStatus.UNREACHABLE,
        details=error.details,
    )


def _unknown(error: CommandError) -> CommandError:
    return CommandError(
        "the connection was lost, and the sidecar that answers now knows nothing of the run",
        "It records nothing, or elsewhere. Find out what the run has done before you ask for it again.",
        code="STREAM_BROKEN",
        status=ExitStatus.UNREACHABLE,
        details={"reason": error.code},
    )
