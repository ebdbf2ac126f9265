"""The questions of one call that are open: whoever reads its stream is told of them, and one answer ends each."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Iterator

from fumehood_server.calls.updates import UpdateLog
from fumehood_server.errors import PluginRequestError
from fumehood_server.model.call import CallQuestion
from fumehood_server.model.questions import MAX_NAME_CHARS, Answer, AnswerAction, Question

MAX_QUESTIONS = 64
"""Of one call. A person who is asked more often than that is not helped by it."""
ANSWER_WITHIN_S = 900.0
"""A quarter of an hour: for somebody who went for a coffee. The call has its worker all the while."""
MAX_WAITED_S = 3600.0
"""Of one call over all its questions: its tool's own timeout stands still meanwhile, and the tool says how often."""

_NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_NAME_CHARS}}}")
"""Of a question (`Question.name`, plugin.proto). It is a plugin's word, and goes to terminals and into URLs."""
_NUMBERED = "question-"


class CallQuestions:
    """The questions of one call, and how long it has waited for people. For one event loop."""

    __slots__ = ("_ids", "_open", "_since", "_updates", "_waited_s", "_waits")

    def __init__(self, updates: UpdateLog) -> None:
        """`updates` tells readers of them."""
        self._updates = updates
        self._ids: set[str] = set()
        """Those of all its questions so far: an answer that comes late is to none that came later."""
        self._open: dict[str, tuple[CallQuestion, asyncio.Future[Answer]]] = {}
        self._waits = 0
        self._since = 0.0
        """When it began to wait."""
        self._waited_s = 0.0

    @property
    def waits(self) -> bool:
        """Whether it waits for a person now."""
        return self._waits > 0

    @property
    def waited_s(self) -> float:
        """How long it has waited for people so far: its tool's own timeout stands still meanwhile."""
        return self._waited_s + (time.monotonic() - self._since if self._waits else 0.0)

    @property
    def left_s(self) -> float:
        """How long it may wait for people yet."""
        return max(0.0, MAX_WAITED_S - self.waited_s)

    @contextlib.contextmanager
    def waiting(self, name: str = "") -> Iterator[str]:
        """Count the time within as waiting for a person. Gives the id of the next question, by its tool's name for it.

        Raises:
            PluginRequestError: the call may ask no more.
        """
        if len(self._ids) >= MAX_QUESTIONS:
            problem = f"the call has asked {MAX_QUESTIONS} questions, and may ask no more"
            raise PluginRequestError("question_limit", problem)
        if not self.left_s:
            problem = f"the call has waited {MAX_WAITED_S:g} s for people, and may ask no more"
            raise PluginRequestError("question_limit", problem)
        question_id = self._id_of(name)
        self._ids.add(question_id)
        if not self._waits:
            self._since = time.monotonic()
        self._waits += 1
        try:
            yield question_id
        finally:
            waited_s = self.waited_s
            self._waits -= 1
            if not self._waits:
                self._waited_s = waited_s

    def _id_of(self, name: str) -> str:
        if name in self._ids or name.startswith(_NUMBERED) or not _NAME.fullmatch(name):
            return f"{_NUMBERED}{len(self._ids) + 1}"
        return name

    async def ask(self, question_id: str, tool: str, question: Question) -> Answer:
        """Wait for the answer of whoever reads the call's stream. Cancelling it takes the question back."""
        within_s = min(ANSWER_WITHIN_S, self.left_s)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        told = CallQuestion(
            question_id=question_id,
            tool=tool,
            message=question.message,
            schema_json=question.schema_json,
            until=time.monotonic() + within_s,
        )
        self._open[question_id] = told, answer
        self._updates.ask(told)
        try:
            async with asyncio.timeout(within_s):
                return await answer
        except TimeoutError:
            return Answer(AnswerAction.CANCEL)
        finally:
            del self._open[question_id]
            self._updates.close_question(question_id)

    def find(self, question_id: str) -> CallQuestion | None:
        """The question, while nobody has answered it."""
        found = self._open.get(question_id)
        return None if found is None or found[1].done() else found[0]

    def answer(self, question_id: str, answer: Answer) -> bool:
        """Answer it. False: it is not open, or somebody was quicker."""
        if self.find(question_id) is None:
            return False
        self._open[question_id][1].set_result(answer)
        return True
