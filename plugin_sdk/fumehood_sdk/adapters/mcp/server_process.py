"""The MCP server's process: posix_spawn(3) with pipes as stdin and stdout, its stderr being the plugin's log."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping

from fumehood_sdk.adapters.mcp.faults import ServerFault

_POLL_S = 0.01
TERMINATE_GRACE_S = 0.3
"""From SIGTERM to SIGKILL of a server that did not exit at the end of its stdin."""


class ServerProcess:
    """A server that was started, and the ends of its pipes, which don't block."""

    __slots__ = ("_status", "pid", "stdin", "stdout")

    def __init__(self, argv: list[str], environment: Mapping[str, str]) -> None:
        """Start it. `argv` begins with an absolute path.

        Raises:
            ServerFault: it can't be started.
        """
        their_in, self.stdin = os.pipe()
        self.stdout, their_out = os.pipe()
        self._status: int | None = None
        try:
            self.pid = os.posix_spawn(
                argv[0],
                argv,
                environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, their_in, 0), (os.POSIX_SPAWN_DUP2, their_out, 1)],
                setsigdef=[signal.SIGPIPE],  # which Python ignores, and a program expects to die of
            )
        except OSError as error:
            raise ServerFault(f"{argv[0]} can't be started: {error.strerror}") from error
        finally:
            os.close(their_in)
            os.close(their_out)
        os.set_blocking(self.stdin, False)
        os.set_blocking(self.stdout, False)

    @property
    def is_running(self) -> bool:
        """Whether it has not exited."""
        return not self._wait(0.0)

    def end(self, grace_s: float) -> str:
        """Close its stdin, wait for its exit, and end it after that. Returns how it ended, in words."""
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1
        for wait_s, number in ((grace_s, signal.SIGTERM), (TERMINATE_GRACE_S, signal.SIGKILL)):
            if self._wait(wait_s):
                break
            os.kill(self.pid, number)
        else:
            self._status = os.waitpid(self.pid, 0)[1]
        return self.exit_description

    def kill(self) -> None:
        """End it at once."""
        if not self._wait(0.0):
            os.kill(self.pid, signal.SIGKILL)
            self._status = os.waitpid(self.pid, 0)[1]

    @property
    def exit_description(self) -> str:
        """How it ended, as far as that is known."""
        if self._status is None and not self._wait(0.0):
            return "it still runs"
        code = os.waitstatus_to_exitcode(self._status or 0)
        return f"it was ended by signal {-code}" if code < 0 else f"it exited with status {code}"

    def _wait(self, within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = status
            elif time.monotonic() >= deadline:
                return False
            else:
                time.sleep(_POLL_S)
        return True
