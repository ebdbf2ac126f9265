"""What ends a run, or a part of one: an error of the taxonomy, raised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fumehood_server.errors import FumehoodError
from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Category, Code


class RunFailedError(FumehoodError):
    """A part of a run failed. What catches it recovers, or lets it end the run."""

    def __init__(self, error: CallError) -> None:
        """`error` is what the caller gets to see, unless somebody recovers."""
        super().__init__(error.message)
        self.error = error

    @property
    def category(self) -> Category:
        """The family of its code."""
        return self.error.code.category


class SuspendedError(FumehoodError):
    """The sidecar shuts down, and the run is left as it is recorded: sent again, its request goes on from there."""


def failed(
    code: Code,
    message: str,
    *,
    retryable: bool = False,
    details: Mapping[str, Any] | None = None,
    cause: CallError | None = None,
) -> RunFailedError:
    """The error to raise."""
    return RunFailedError(
        CallError(code=code, message=message, retryable=retryable, details=details or {}, caused_by=cause)
    )
