"""What goes wrong with a plugin's packages, named by who must act."""

from __future__ import annotations

from fumehood_server.errors import FumehoodError
from fumehood_server.model.tool import Reason


class EnvironmentUnavailableError(FumehoodError):
    """A plugin's packages can't be used as they are. `reason` says why, and which command mends it."""

    def __init__(self, reason: Reason) -> None:
        """Keep the reason."""
        super().__init__(reason.message)
        self.reason = reason


class InstallerError(FumehoodError):
    """Packages could not be resolved or installed. Whoever runs the command must act; `hint` says how (may be empty).

    `problem` may have several lines: it ends in what the installer wrote last.
    """

    def __init__(self, problem: str, hint: str = "") -> None:
        """Keep the problem and the remedy."""
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


class HostsRefusedError(InstallerError):
    """A build command failed that was refused a host."""
