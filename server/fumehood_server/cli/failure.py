"""Command errors: a message, a remedy, a stable code and an exit status."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from fumehood_server.errors import ConfigError, FumehoodError


class ExitStatus(IntEnum):
    """Exit statuses of `fumehood`. Stable: scripts switch on them."""

    OK = 0
    FAILED = 1
    """The tool failed; or, for `doctor` and `plugin check`, something was found."""
    WRONG = 2
    """The command or the call was wrong: usage, unknown tool, bad arguments, refused by the sidecar."""
    UNREACHABLE = 3
    """The sidecar can't be reached, or is shutting down."""
    INTERRUPTED = 130
    """Ended by SIGINT: 128 and its number, as in shells."""


class CommandError(FumehoodError):
    """A command fails. The person at the command line must act; `todo` says how (may be empty)."""

    def __init__(
        self,
        what: str,
        todo: str = "",
        *,
        code: str = "USAGE",
        status: ExitStatus = ExitStatus.WRONG,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep what happened, what to do, a stable code in UPPER_SNAKE_CASE and the exit status."""
        super().__init__(what)
        self.what = what
        self.todo = todo
        self.code = code
        self.status = status
        self.details = dict(details or {})

    def to_json(self) -> dict[str, Any]:
        """The error object that `--json` prints on stderr."""
        return {
            "error": {
                "code": self.code,
                "message": self.what,
                "todo": self.todo,
                "exit_status": int(self.status),
                "details": self.details,
            }
        }


def config_failure(error: ConfigError) -> CommandError:
    """A mistake in one of the operator's or the author's files as a command's error."""
    where = f"{error.path}:{error.line}" if error.line else str(error.path)
    return CommandError(
        f"{where}: {error.problem}",
        error.hint or "Mend it, and run this again.",
        code="CONFIG_INVALID",
        details={"file": str(error.path), "line": error.line or None, "key": error.key or None},
    )
