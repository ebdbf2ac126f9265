"""Events of what a call's tool asks people in the middle of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fumehood_server.model.events import Digested, Event


@dataclass(slots=True, kw_only=True)
class QuestionAsked(Event):
    """A call's tool has a person asked something."""

    TYPE: ClassVar[str] = "question_asked"
    question_id: str
    asked: str
    """"caller", "approvers", or nothing where nobody could be."""
    approval_id: str
    """Of the approval that it became. Empty: it became none."""
    question: Digested | None
    """JSON with `message` and `schema_json`. None: it is not recorded."""
    refused: str
    """Why nobody was asked. Empty: somebody was."""


@dataclass(slots=True, kw_only=True)
class QuestionAnswered(Event):
    """A question has its answer, or will have none."""

    TYPE: ClassVar[str] = "question_answered"
    question_id: str
    action: str
    """"accept", "decline" or "cancel"."""
    by: str
    """Who answered. Empty: nobody did in time, or the call has ended."""
    answer: Digested | None
    """What was filled in. None: nothing, or it is not recorded."""
