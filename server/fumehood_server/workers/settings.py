"""Every time and cap that the sidecar holds a worker to, with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood_server.model.tool import Isolation

START_TIMEOUT_S = 10.0
"""From launch to `Ready`. A Python plugin with heavy imports takes 2 to 4 s on a slow disk; nobody waits longer."""

CANCEL_GRACE_S = 1.0
"""From the cancel frame to SIGTERM: a tool between two awaits answers in milliseconds."""

TERMINATE_GRACE_S = 0.5
"""From SIGTERM to the kill: enough to remove a temporary file, too short to be waited out on purpose."""

CALL_CANCEL_GRACE_S = 0.008
"""The same for a process that serves one call: it has nobody else to serve, so it is ended as soon as its call is not
wanted any more. Long enough for a tool that waits, or that looks now and then, to answer."""

CALL_TERMINATE_GRACE_S = 0.004
"""From SIGTERM to the kill of such a process. The rest of 50 ms after a deadline is the kernel's, which may have twenty
trees to end at once."""

KILL_CONFIRM_S = 5.0
"""How long a killed process may take to vanish. Only one that hangs in the kernel, as on a dead mount, needs it."""

LINGER_S = 5.0
"""How long other calls may go on in a worker that is to end because one call ignored its cancellation."""

SHUTDOWN_GRACE_S = 2.0
"""From the shutdown frame to SIGTERM for a worker without calls. It has nothing to finish but its own clean-up."""

PIPE_GRACE_S = 1.0
"""An exit is seen a moment after the pipes are closed. A process that closed one and lives on is at fault."""

FRAME_STALL_S = 10.0
"""From a frame's first byte to its last. At the largest frame that is 400 KiB/s, far below what any pipe carries."""

MAX_FRAME_BYTES = 4 * 1024 * 1024
"""Four times the default cap of one result, so that the cap is answered in words and not by the end of the process."""

MAX_UNSENT_BYTES = 8 * 1024 * 1024
"""Frames that wait for a plugin which does not read. Eight calls with arguments of the largest size."""

MAX_UPDATES = 100_000
"""Updates of one call (protos/fumehood/v1/plugin.proto)."""

FORK_ANSWER_S = 15.0
"""From an order to a fork supervisor's answer. It gives up on a child after 5 s; one that says nothing is replaced."""

PREWARMED_LAUNCHES = 1
"""Launched ones: starting takes a tenth of a second, and each is a whole sandbox that waits."""

IDLE_S = 300.0
"""A worker that nobody called for so long is ended. Starting it again costs well under a second."""

BACKOFF_FIRST_S = 0.25
"""Wait after the first failed start; it doubles with each further one."""

BACKOFF_LAST_S = 30.0
"""Longest wait between two starts, so that a mended plugin is served again within half a minute."""

HEALTHY_S = 60.0
"""A worker that lived so long did not crash at start, whatever it dies of later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The times and caps in force. The constants of the same names are the defaults and tell the reasons."""

    start_timeout_s: float = START_TIMEOUT_S
    cancel_grace_s: float = CANCEL_GRACE_S
    terminate_grace_s: float = TERMINATE_GRACE_S
    call_cancel_grace_s: float = CALL_CANCEL_GRACE_S
    call_terminate_grace_s: float = CALL_TERMINATE_GRACE_S
    kill_confirm_s: float = KILL_CONFIRM_S
    linger_s: float = LINGER_S
    shutdown_grace_s: float = SHUTDOWN_GRACE_S
    pipe_grace_s: float = PIPE_GRACE_S
    frame_stall_s: float = FRAME_STALL_S
    max_frame_bytes: int = MAX_FRAME_BYTES
    max_unsent_bytes: int = MAX_UNSENT_BYTES
    max_updates: int = MAX_UPDATES
    fork_answer_s: float = FORK_ANSWER_S
    idle_s: float = IDLE_S
    backoff_first_s: float = BACKOFF_FIRST_S
    backoff_last_s: float = BACKOFF_LAST_S
    healthy_s: float = HEALTHY_S

    def cancel_grace_of(self, isolation: Isolation) -> float:
        """From a cancel frame to SIGTERM."""
        return self.call_cancel_grace_s if isolation is Isolation.CALL else self.cancel_grace_s

    def terminate_grace_of(self, isolation: Isolation) -> float:
        """From SIGTERM to the kill."""
        return self.call_terminate_grace_s if isolation is Isolation.CALL else self.terminate_grace_s
