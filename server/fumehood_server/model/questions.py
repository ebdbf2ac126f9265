"""Questions of a tool to a person in the middle of a call, and their answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MAX_MESSAGE_BYTES = 8192
"""`Question.message` (plugin.proto)."""
MAX_SCHEMA_BYTES = 16 * 1024
"""`Question.schema_json` (plugin.proto)."""
MAX_NAME_CHARS = 64
"""`Question.name` (plugin.proto)."""
MAX_CONTENT_BYTES = 64 * 1024
"""`AnswerQuestionRequest.content_json` (tool_service.proto)."""


class AnswerAction(StrEnum):
    """What a person does with a question."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Question:
    """What a tool asks. All of it may be hostile."""

    message: str
    schema_json: str
    """What is to be filled in. Empty: nothing is."""
    name: str = ""
    """What the tool calls it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person says."""

    action: AnswerAction
    content_json: str = ""
    """What was filled in. Empty: nothing was."""
    by: str = ""
    """Who says it, as the journal records it. Empty: nobody, since the time was over."""
