"""A process group in a keeper's care: its start and its end, as the launcher sees them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Final

from fumehood_sandbox.errors import LaunchError, SandboxError, SandboxUnavailableError
from fumehood_sandbox.landlock_only.path_view import Places, discard
from fumehood_sandbox.outside.bubblewrap_process import SandboxedProcess, ends_within
from fumehood_sandbox.outside.launching import Launching
from fumehood_sandbox.receipt import Layer, Receipt

_END_TIMEOUT_S: Final = 10.0
"""The keeper ends the group in milliseconds and removes the scratch folder within 5 s."""
_TO_THE_GROUP: Final = 4
"""PIDFD_SIGNAL_PROCESS_GROUP (Linux 6.9): the group is named by its leader, so its number can't be anybody else's."""
_INNER_LAYERS: Final = ("rlimits", "identity", "capabilities", "landlock", "descriptors", "seccomp")


class GroupLaunching(Launching):
    """A start under way without namespaces."""

    _STEP = "keeper"
    _STARTER = "the keeper"

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        status_fd: int,
        receipt: Receipt,
        places: Places,
        *,
        weaker: frozenset[str],
    ) -> None:
        """Take over the keeper, the pipe and the folders. `weaker` names the inner layers that are."""
        super().__init__(popen, status_fd, os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), receipt, None)
        self._places = places
        self._weaker = weaker

    def abort(self) -> None:
        """Kill what was started and wait for its end. Idempotent; does nothing once `advance` gave the process away."""
        if self._over:
            return
        super().abort()
        _discard(self._places)

    def _kill(self) -> None:
        """Have the keeper end the group; before there is one, the signal ends the keeper itself."""
        if self._popen.returncode is not None:
            return
        ended = os.pidfd_open(self._popen.pid)
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(ended, number)
                if ends_within(ended, _END_TIMEOUT_S):
                    break
        finally:
            os.close(ended)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(_END_TIMEOUT_S)

    def _made(self, lines: list[list[str]]) -> SandboxedProcess:
        reported = {line[1]: line[2] for line in lines if line[0] == "layer"}
        missing = [name for name in _INNER_LAYERS if name not in reported]
        leader = next((int(line[1]) for line in lines if line[0] == "leader"), 0)
        if missing or not leader:
            raise LaunchError("status", f"not reported: {', '.join(missing) or 'the leader'}")
        inner = (self._layer(name, reported[name]) for name in _INNER_LAYERS)
        outer = self._receipt
        receipt = Receipt(outer.level, outer.backend, outer.policy_digest, (*outer.layers, *inner))
        with contextlib.ExitStack() as stack:
            held = _leader_pidfd(leader, self._popen.pid)
            if held is not None:
                stack.callback(os.close, held)
            process = ProcessGroup(self._popen, held, receipt, self._fds(), self._places)
            stack.pop_all()
        return process

    def _layer(self, name: str, detail: str) -> Layer:
        layer = super()._layer(name, detail)
        return replace(layer, weaker=True) if name in self._weaker else layer

    def _error_of(self, line: list[str]) -> SandboxError:
        _, step, problem, path, _ = (*line, "", "", "", "0")[:5]
        if step == "access":
            return SandboxUnavailableError(
                "access",
                f"{path}: {problem}, and without namespaces no mount can give it any",
                "let every user read it (and its folders be entered), give what is written to the program's user with "
                "chown -R, or run the sidecar as an ordinary user who has the rights",
            )
        if step == "rights":
            return SandboxUnavailableError(
                "identity", problem, "give the container these capabilities, or run the sidecar as an ordinary user"
            )
        return super()._error_of(line)


class ProcessGroup(SandboxedProcess):
    """A sandboxed process tree that is one process group, which nothing in it can leave.

    `pid` and `init_pid` are the keeper's: it exits with the program's status once everybody in the group is dead.
    """

    def __init__(
        self,
        keeper: subprocess.Popen[bytes],
        leader_pidfd: int | None,
        receipt: Receipt,
        fds: tuple[int, int, int],
        places: Places,
    ) -> None:
        """Take over the keeper, the group and the folders."""
        super().__init__(keeper, keeper.pid, leader_pidfd, receipt, fds, leaf=None)
        self._places = places

    def pidfds(self) -> tuple[int, ...]:
        """The keeper's: it ends when everybody has."""
        return (self._pidfd,)

    def kill(self) -> None:
        """Kill the whole group at once: the kernel lets nobody fork out of it meanwhile. Idempotent."""
        if self._closed or self._init_pidfd is None:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._init_pidfd, signal.SIGKILL, None, _TO_THE_GROUP)

    def close(self) -> None:
        """Kill the group, wait for the keeper's end, close the descriptors. Idempotent."""
        if self._closed:
            return
        super().close()
        _discard(self._places)


def _leader_pidfd(leader: int, keeper: int) -> int | None:
    """Hold the leader, unless it has ended and its number is somebody else's: then the keeper has ended all.

    Raises:
        OSError: there is no descriptor left to hold it by, or to look at it. Without a hold nothing would end it later.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), contextlib.ExitStack() as stack:
        pidfd = os.pidfd_open(leader)
        stack.callback(os.close, pidfd)
        status = Path(f"/proc/{leader}/status").read_text(encoding="utf-8", errors="replace")
        if f"\nPPid:\t{keeper}\n" in status:
            stack.pop_all()
            return pidfd
    return None


def _discard(places: Places) -> None:
    """Remove what a keeper left that was killed before it could."""
    with contextlib.suppress(OSError):
        if Path(places.base).exists():
            discard(places.base, places.scratch, places.view)
