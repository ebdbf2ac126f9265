"""Ring buffer of one call's updates, and the flow control between who reads them and who sends them.

A reader that falls behind has the sender held, where that holds up nobody else; what is sent all the same pushes out
the oldest. Where several read, the one that came last sets the pace: whoever came back over a new connection has left
an old one that may not be known to be dead.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable

from fumehood_server.model.call import CallApproval, CallQuestion, CallRetry, CallUpdate

Kept = CallUpdate | CallRetry | CallApproval
Entry = Kept | CallQuestion

WINDOW = 64
WINDOW_CHARS = 128 * 1024
"""What a reader may leave unread before the sender is held. It goes on once half of it is read."""

KEPT = 256
KEPT_CHARS = 256 * 1024
"""What is kept for readers that are behind, or come back: of the text together, where there is more than one."""


class UpdateLog:
    """The updates of a call that is under way. Nothing is kept until somebody reads. For one event loop.

    A question that is open is told to each reader, whoever comes when, and is not dropped.
    """

    __slots__ = (
        "_chars",
        "_entries",
        "_keeps",
        "_last_sequence",
        "_next",
        "_questions",
        "_readers",
        "_throttle",
        "held",
    )

    def __init__(self) -> None:
        """Empty, and read by nobody."""
        self._entries: deque[tuple[Kept, int]] = deque()
        """Each with the characters of all up to it."""
        self._next = 0
        """The number of the next entry, from 0."""
        self._chars = 0
        self._keeps = False
        self._last_sequence = 0
        self._readers: list[UpdateReader] = []
        self._questions: dict[str, CallQuestion] = {}
        self._throttle: Callable[[bool], None] | None = None
        self.held = False
        """Whether the sender should wait."""

    @property
    def keeps(self) -> bool:
        """Whether anybody has asked for updates."""
        return self._keeps

    def throttle(self, hold: Callable[[bool], None] | None) -> None:
        """Have `hold` told whether to wait, now if so and at each change. None: there is no sender any more."""
        self._throttle = hold
        if hold is not None and self.held:
            hold(True)

    def put(self, entry: Kept) -> None:
        """Keep an update, and wake whoever reads."""
        if isinstance(entry, CallUpdate):
            self._last_sequence = entry.sequence
        if not self._keeps:
            return
        self._chars += _chars(entry)
        self._entries.append((entry, self._chars))
        self._next += 1
        entries = self._entries
        while len(entries) > KEPT or (len(entries) > 1 and self._chars - self._read_chars(self._first) > KEPT_CHARS):
            entries.popleft()
        for reader in tuple(self._readers):
            reader.wake()
        self._set_held()

    def ask(self, question: CallQuestion) -> None:
        """Tell each reader of a question, until `close_question`."""
        self._questions[question.question_id] = question
        for reader in tuple(self._readers):
            reader.questions.append(question)
            reader.wake()

    def close_question(self, question_id: str) -> None:
        """Nobody waits for its answer any more: who has not been told of it is not."""
        question = self._questions.pop(question_id)
        for reader in self._readers:
            if question in reader.questions:
                reader.questions.remove(question)

    def read(self, wake: Callable[[], None], after: int = 0) -> UpdateReader:
        """Read what is kept beyond this sequence number, and what comes. `wake` is called for each that comes.

        It must not raise, and the reader be closed.
        """
        self._keeps = True
        place, kept = self._next, [each for each, _ in self._entries]
        first = None
        for index, each in enumerate(kept):
            if isinstance(each, CallUpdate) and each.sequence > after:
                place, first = self._first + index, each.sequence
                break
        missed = (self._last_sequence if first is None else first - 1) - after
        reader = UpdateReader(self, wake, place, max(missed, 0))
        reader.questions.extend(self._questions.values())
        self._readers.append(reader)
        self._set_held()
        return reader

    def read_questions(self, wake: Callable[[], None]) -> UpdateReader:
        """Read the questions that are open, and those that come, and no update. As `read`."""
        reader = UpdateReader(self, wake, sys.maxsize, 0)
        reader.questions.extend(self._questions.values())
        self._readers.insert(0, reader)  # the last one sets the pace
        return reader

    @property
    def _first(self) -> int:
        return self._next - len(self._entries)

    def _read_chars(self, place: int) -> int:
        """The characters of all entries before this one, which is kept or the next."""
        index = place - self._first
        if index:
            return self._entries[index - 1][1]
        return self._entries[0][1] - _chars(self._entries[0][0]) if self._entries else self._chars

    def _behind(self, reader: UpdateReader) -> bool:
        """Whether so much is unread that the sender should wait, or go on waiting."""
        place, share = max(reader.place, self._first), 2 if self.held else 1
        return (self._next - place) * share >= WINDOW or (
            self._next > place and (self._chars - self._read_chars(place)) * share >= WINDOW_CHARS
        )

    def _set_held(self) -> None:
        held = bool(self._readers) and self._behind(self._readers[-1])
        if held is not self.held:
            self.held = held
            if self._throttle is not None:
                self._throttle(held)

    # For its readers.

    def has_more(self, reader: UpdateReader) -> bool:
        """Whether there is something beyond the reader's place."""
        return reader.place < self._next

    def take(self, reader: UpdateReader) -> Kept:
        """The next entry that is kept. There must be one."""
        place = max(reader.place, self._first)
        entry = self._entries[place - self._first][0]
        reader.place = place + 1
        self._set_held()
        return entry

    def leave(self, reader: UpdateReader) -> None:
        """The reader reads no more."""
        if reader in self._readers:
            self._readers.remove(reader)
            self._set_held()


class UpdateReader:
    """One reader's place in an `UpdateLog`."""

    __slots__ = ("_log", "missed", "place", "questions", "wake")

    def __init__(self, log: UpdateLog, wake: Callable[[], None], place: int, missed: int) -> None:
        """Use `UpdateLog.read`."""
        self._log = log
        self.wake = wake
        self.place = place
        self.missed = missed
        """How many updates it asked for that are no longer kept, or never were."""
        self.questions: deque[CallQuestion] = deque()
        """Those that it was not told of yet."""

    @property
    def ready(self) -> bool:
        """Whether there is something to take."""
        return bool(self.questions) or self._log.has_more(self)

    def take(self) -> Entry:
        """The next update, or the oldest that is kept where that is gone. Questions come first. There must be one."""
        return self.questions.popleft() if self.questions else self._log.take(self)

    def close(self) -> None:
        """Read no more. Idempotent."""
        self._log.leave(self)


def _chars(entry: Kept) -> int:
    if isinstance(entry, CallRetry):
        return len(entry.error.message)
    if isinstance(entry, CallApproval):
        return len(entry.approval_id)
    return len(entry.message) + len(entry.data_json)
