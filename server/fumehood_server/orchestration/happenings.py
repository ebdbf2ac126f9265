"""What happens in a run, for whoever watches it: a bounded buffer that readers follow at their own pace."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from fumehood_server.model.call import CallError, CallUpdate
from fumehood_server.orchestration.lifecycle import Transition
from fumehood_server.orchestration.response import TokenUsage
from fumehood_server.orchestration.shown_errors import weight

KEPT = 2_048
KEPT_CHARS = 1024 * 1024
"""What is kept for readers that are behind, or come back: of text and errors together, where there is more than one."""
SHOWN_CHARS = 4_096
"""Of a tool's arguments or result."""


@dataclass(frozen=True, slots=True)
class InferenceStarted:
    """A model is asked."""

    name: str
    engine: str
    attempt: int


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A model says something."""

    inference: str
    text: str


@dataclass(frozen=True, slots=True)
class InferenceFinished:
    """A model has answered, or failed."""

    name: str
    finish_reason: str
    usage: TokenUsage
    error: CallError | None = None
    retried: bool = False
    recorded: bool = False


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool is called."""

    call_id: str
    tool: str
    arguments_json: str
    inference: str


@dataclass(frozen=True, slots=True)
class ToolSaid:
    """A tool says something."""

    call_id: str
    update: CallUpdate


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool has answered, or failed."""

    call_id: str
    tool: str
    text: str
    error: CallError | None
    """Cut: see `cut_error`."""


@dataclass(frozen=True, slots=True)
class ApprovalAwaited:
    """A call waits for a person."""

    approval_id: str
    call_id: str
    tool: str


Happening = (
    Transition
    | InferenceStarted
    | TextPiece
    | InferenceFinished
    | ToolStarted
    | ToolSaid
    | ToolFinished
    | ApprovalAwaited
)


class HappeningLog:
    """What happened in one run. Nothing holds the run up: who is behind misses the oldest. For one event loop."""

    __slots__ = ("_chars", "_entries", "_last", "_wakes")

    def __init__(self) -> None:
        """Nothing yet."""
        self._entries: deque[Happening] = deque()
        self._last = 0
        """Sequence number of the newest, from 1."""
        self._chars = 0
        self._wakes: set[Callable[[], None]] = set()

    def put(self, happening: Happening) -> None:
        """Add one, and wake who reads."""
        entries = self._entries
        entries.append(happening)
        self._last += 1
        self._chars += _chars(happening)
        while len(entries) > KEPT or (len(entries) > 1 and self._chars > KEPT_CHARS):
            self._chars -= _chars(entries.popleft())
        for wake in tuple(self._wakes):
            wake()

    @property
    def is_read(self) -> bool:
        """Whether anybody reads now."""
        return bool(self._wakes)

    def follow(self, wake: Callable[[], None]) -> None:
        """Have `wake` called for each that comes, until `leave`. It must not raise."""
        self._wakes.add(wake)

    def leave(self, wake: Callable[[], None]) -> None:
        """Undo `follow`. Idempotent."""
        self._wakes.discard(wake)

    def after(self, sequence: int) -> tuple[int, Happening] | None:
        """The first that is kept beyond a sequence number, with its own. None: there is none yet."""
        if sequence >= self._last:
            return None
        first = self._last - len(self._entries) + 1
        number = max(sequence + 1, first)
        return number, self._entries[number - first]


def _chars(happening: Happening) -> int:
    match happening:
        case TextPiece():
            return len(happening.text)
        case ToolFinished():
            return len(happening.text) + weight(happening.error)
        case InferenceFinished():
            return weight(happening.error)
        case ToolStarted():
            return len(happening.arguments_json)
        case ToolSaid():
            return len(happening.update.message) + len(happening.update.data_json)
    return 0
