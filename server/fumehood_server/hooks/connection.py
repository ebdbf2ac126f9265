"""One stream that serves a hook: a bounded send queue of questions, and the answers that they wait for."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass

from fumehood_server.errors import Refusal, RefusalReason
from fumehood_server.model.caller import Caller
from fumehood_server.model.hooks import Answer, Gone, HookedCall, HookedResult, HookGoneError, Stage

MAX_QUESTIONS = 64
"""That wait for an answer at a time. Calls above it wait for a place, as long as their question may take."""
MAX_MISSED = 16
"""Questions without an answer in time, one after the other, after which the stream is ended."""


class UnaskedError(Exception):
    """An answer to what was not asked, or not in this way. The stream must end."""


@dataclass(slots=True, eq=False)
class Question:
    """One question. `answered` is its answer's."""

    question_id: int
    call: HookedCall
    arguments_json: str
    result: HookedResult | None
    ends_at: float
    """By `time.monotonic`."""
    answered: asyncio.Future[Answer]
    is_sent: bool = False

    @property
    def stage(self) -> Stage:
        """When it is asked."""
        return Stage.BEFORE if self.result is None else Stage.AFTER

    @property
    def left_s(self) -> float:
        """What is left of its time."""
        return max(self.ends_at - time.monotonic(), 0.0)


class HookConnection:
    """For one event loop. Whoever reads and writes the stream takes questions, gives answers, and waits for `ended`."""

    __slots__ = ("_last_id", "_late", "_open", "_queue", "_wanted", "by", "ended", "held", "hook", "missed")

    def __init__(self, hook: str, by: Caller) -> None:
        """`by` serves the hook."""
        self.hook = hook
        self.by = by
        self.ended: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        """Why the sidecar ends the stream. None: it had ended by itself."""
        self.held = 0
        """Places that calls have here."""
        self.missed = 0
        """Questions without an answer in time since the last answer."""
        self._last_id = 0
        self._open: dict[int, Question] = {}
        self._late: set[int] = set()
        """Of those that were sent and got no answer in time. Each may still come."""
        self._queue: deque[Question] = deque()
        self._wanted: asyncio.Future[None] | None = None

    # For calls.

    def ask(self, call: HookedCall, arguments_json: str, result: HookedResult | None, ends_at: float) -> Question:
        """Queue a question, for which a place was taken. `settle` it in the end."""
        self._last_id += 1
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        question = Question(self._last_id, call, arguments_json, result, ends_at, answered)
        self._open[question.question_id] = question
        self._queue.append(question)
        self._wake()
        return question

    def settle(self, question: Question, *, missed: bool) -> None:
        """Its answer is here, or nobody waits for it any more. `missed`: it did not come in time."""
        if self._open.pop(question.question_id, None) is None:
            return
        if question.is_sent:
            self._late.add(question.question_id)
        else:
            self._queue.remove(question)
        self.missed += missed
        if self.missed >= MAX_MISSED or len(self._late) >= MAX_QUESTIONS:
            text = f'{self.missed or len(self._late)} questions for hook "{self.hook}" got no answer in time'
            self.end(Refusal(RefusalReason.HOOK_UNRESPONSIVE, text, {"hook": self.hook}))

    def end(self, refusal: Refusal | None) -> None:
        """Let go of every call that waits here. Idempotent."""
        if not self.ended.done():
            self.ended.set_result(refusal)
        for question in self._open.values():
            if not question.answered.done():
                question.answered.set_exception(HookGoneError(Gone.DISCONNECTED, self.by))
        self._open.clear()
        self._queue.clear()

    # For the stream.

    async def next_question(self) -> Question:
        """The next question to send. It counts as sent."""
        while not self._queue:
            self._wanted = asyncio.get_running_loop().create_future()
            await self._wanted
        question = self._queue.popleft()
        question.is_sent = True
        return question

    def question(self, question_id: int) -> Question | None:
        """The question of an answer that has come. None: it is too late, and to be dropped.

        Raises:
            UnaskedError: it was never asked, or was answered before.
        """
        found = self._open.get(question_id)
        if found is not None and found.is_sent and not found.answered.done():
            return found
        if found is None and question_id in self._late:
            self._late.discard(question_id)
            self.missed = 0
            return None
        raise UnaskedError(f"question {question_id} was not asked on this stream, or was answered before")

    def answer(self, question: Question, answer: Answer) -> None:
        """Give a question its answer."""
        self.missed = 0
        self._open.pop(question.question_id)
        question.answered.set_result(answer)

    def _wake(self) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)
