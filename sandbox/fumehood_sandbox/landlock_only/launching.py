"""The group supervisor under way: ends it, and makes a process of it and its group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import replace

from fumehood_sandbox.errors import LaunchError, SandboxError, SandboxUnavailableError
from fumehood_sandbox.kernel.pidfds import ends_within
from fumehood_sandbox.landlock_only.group_supervisor import STEP
from fumehood_sandbox.landlock_only.path_view import PathView
from fumehood_sandbox.landlock_only.process import ProcessGroup, discard_left, leader_pidfd
from fumehood_sandbox.outside.launching import BackendStart, StageReports, take_pipes
from fumehood_sandbox.receipt import Receipt

_END_TIMEOUT_S = 10.0
"""The supervisor ends the group in milliseconds and removes the scratch folder within 5 s."""


class GroupStart(BackendStart):
    """A start of the group supervisor, and the folders of its program."""

    def __init__(
        self, popen: subprocess.Popen[bytes], receipt: Receipt, view: PathView, *, weaker: frozenset[str]
    ) -> None:
        """Take over the supervisor and the folders. `weaker` names the inner layers that are."""
        self.step, self.starter = STEP, "the group supervisor"
        self._popen = popen
        self._receipt = receipt
        self._view = view
        self._weaker = weaker

    def kill(self) -> None:
        """Have the supervisor end the group; before there is one, the signal ends the supervisor itself."""
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

    def release(self) -> None:
        """Remove the folders."""
        discard_left(self._view)

    def check_attached(self) -> None:
        """There is no cgroup."""

    def make_process(self, reports: StageReports) -> ProcessGroup:
        """The process, with its group's leader held."""
        layers = reports.layers(bounded=frozenset())
        leader = reports.first("leader")
        if leader is None:
            raise LaunchError("status", "not reported: the leader")
        inner = (replace(layer, weaker=True) if layer.name in self._weaker else layer for layer in layers)
        outer = self._receipt
        receipt = Receipt(outer.level, outer.backend, outer.policy_digest, (*outer.layers, *inner))
        with contextlib.ExitStack() as stack:
            held = leader_pidfd(int(leader[0]), self._popen.pid)
            if held is not None:
                stack.callback(os.close, held)
            process = ProcessGroup(self._popen, held, receipt, take_pipes(self._popen), self._view)
            stack.pop_all()
        return process

    def error_of(self, step: str, problem: str, path: str, errno: int) -> SandboxError:
        """The error that a stage reported."""
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
        return LaunchError(step, problem, path=path, errno=errno)
