"""State of one request to an engine, for its transport, which no SDK hands anything through."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import NoReturn


class AnswerTooLargeError(Exception):
    """An answer is not within its bounds."""


class AnswerRefusedError(Exception):
    """An answer is compressed, so that what it decodes to would not be bounded, or leads elsewhere."""


@dataclass(slots=True)
class Exchange:
    """One request to an engine."""

    key: str = ""
    """Empty: none is sent."""
    fault: Exception | None = None
    """Why the transport ended it, however the SDK wraps that."""
    has_head: bool = False
    """Whether the final head of the answer has come."""
    head_bytes: int = 0
    """That were read until then."""

    def refuse(self, fault: Exception) -> NoReturn:
        """End it. Raises `fault`."""
        self.fault = fault
        raise fault


EXCHANGE: ContextVar[Exchange] = ContextVar("exchange")
"""Of the task that asks."""


__all__ = ["EXCHANGE", "AnswerRefusedError", "AnswerTooLargeError", "Exchange"]
