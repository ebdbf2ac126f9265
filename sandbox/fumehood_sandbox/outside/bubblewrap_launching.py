"""bubblewrap under way: finds pid 1 of its namespace, kills both, and makes a process of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from fumehood_sandbox.cgroup import Control
from fumehood_sandbox.errors import LaunchError, SandboxError, SandboxUnavailableError
from fumehood_sandbox.inside.idmapped_mounts import STEP as IDMAPPED_MOUNT
from fumehood_sandbox.kernel.pidfds import ends_within, kill_process, open_pidfd, reap
from fumehood_sandbox.outside.bubblewrap_process import BubblewrapProcess
from fumehood_sandbox.outside.cgroup_attach import CgroupAttach
from fumehood_sandbox.outside.launching import BackendStart, StageReports, take_pipes
from fumehood_sandbox.receipt import Receipt

_REAP_TIMEOUT_S = 10.0
"""For the death of what was just killed; see `BubblewrapProcess.close`."""
_LOOK_AGAIN_S = 0.001


class BubblewrapStart(BackendStart):
    """A start of bubblewrap: its process, its --info-fd, the ways into the cgroup and to the relay's socket."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        info_fd: int,
        receipt: Receipt,
        attach: CgroupAttach | None,
        *,
        relay_channel: socket.socket | None,
    ) -> None:
        """Take over all of it. `receipt` holds the layers that are in force already."""
        self.step, self.starter = "namespaces", "bubblewrap"
        self._popen = popen
        self._info_fd = info_fd
        self._receipt = receipt
        self._attach = attach
        self._relay_channel = relay_channel
        self._init_pid = 0
        self._init_pidfd: int | None = None
        self._init_found = False
        """Whether it is held, or was gone before it could be."""

    def kill(self) -> None:
        """Kill what was started, and reap bubblewrap.

        bubblewrap's child asks to die with it only late in its start. Before bubblewrap has named it, it is in
        bubblewrap's process group, waits for bubblewrap, and is killed with the group; afterwards it is killed by its
        number. Until bubblewrap is reaped, nobody else can have the group's number.
        """
        if self._popen.returncode is not None:
            return
        ended = os.pidfd_open(self._popen.pid)
        try:
            for _ in range(2):  # bubblewrap may have named it just before it was killed
                with contextlib.suppress(LaunchError, OSError):
                    self._find_init()
                if self._init_pidfd is not None:
                    kill_process(self._init_pidfd)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._popen.pid, signal.SIGKILL)
                ends_within(ended, _REAP_TIMEOUT_S)
        finally:
            os.close(ended)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(_REAP_TIMEOUT_S)
        if self._init_pidfd is None:
            # A child that bubblewrap had not named, where the launcher inherits orphans. It is being killed.
            until = time.monotonic() + _REAP_TIMEOUT_S
            with contextlib.suppress(ChildProcessError):
                while not os.waitid(os.P_PGID, self._popen.pid, os.WEXITED | os.WNOHANG) and time.monotonic() < until:
                    time.sleep(_LOOK_AGAIN_S)

    def release(self) -> None:
        """Reap pid 1 of the namespace, close the descriptors, give up the leaf."""
        if self._init_pidfd is not None:
            reap(self._init_pidfd, _REAP_TIMEOUT_S)
            os.close(self._init_pidfd)
        self._close_channels()
        if self._attach is not None:
            self._attach.abandon()

    def _close_channels(self) -> None:
        os.close(self._info_fd)
        if self._relay_channel is not None:
            self._relay_channel.close()

    def check_attached(self) -> None:
        """Wait until it is in its cgroup, if there is one.

        Raises:
            LaunchError: it can't be put there.
        """
        error = self._attach.finish() if self._attach is not None else None
        if error is not None:
            problem = f"bubblewrap can't be put into its leaf: {error.strerror}"
            raise LaunchError("cgroup", problem, errno=error.errno or 0)

    def make_process(self, reports: StageReports) -> BubblewrapProcess:
        """The process, with pid 1 of its namespace, its leaf and its relay."""
        leaf = self._attach.leaf if self._attach is not None else None
        bounded = leaf.controls if leaf is not None else frozenset[Control]()
        inner = reports.layers("scratch", *(() if self._relay_channel is None else ("relay",)), bounded=bounded)
        self._find_init()
        outer = self._receipt
        receipt = Receipt(outer.level, outer.backend, outer.policy_digest, (*outer.layers, *inner))
        with contextlib.ExitStack() as stack:
            relay = None
            if self._relay_channel is not None:
                relay = stack.enter_context(_received_listener(self._relay_channel))
            fds = take_pipes(self._popen)
            process = BubblewrapProcess(
                self._popen, self._init_pid, self._init_pidfd, receipt, fds, leaf=leaf, relay=relay
            )
            stack.pop_all()
        self._close_channels()
        return process

    def error_of(self, step: str, problem: str, path: str, errno: int) -> SandboxError:
        """The error that a stage reported."""
        if step == IDMAPPED_MOUNT:
            return SandboxUnavailableError(
                step,
                f"{path} belongs to another user than the program's, and can't be mapped to it: {problem}",
                "give it to the program's user with chown -R (docs/sandbox.md, Identity), or run the sidecar as its "
                "owner, or as root with CAP_SYS_ADMIN on a file system that has idmapped mounts",
            )
        return LaunchError(step, problem, path=path, errno=errno)

    def _find_init(self) -> None:
        """Learn pid 1 of the namespace from bubblewrap, once, and hold it by a pidfd unless it has ended and is gone.

        Raises:
            LaunchError: bubblewrap hasn't named it.
            OSError: it can't be held, for want of descriptors. Without a hold on it nothing would end it later.
        """
        if self._init_found:
            return
        if not self._init_pid:
            try:
                self._init_pid = int(json.loads(os.read(self._info_fd, 4096))["child-pid"])
            except (OSError, ValueError, KeyError) as error:
                raise LaunchError("namespaces", "bubblewrap did not name its child") from error
        with contextlib.suppress(ProcessLookupError), contextlib.ExitStack() as stack:
            pidfd = open_pidfd(self._init_pid)
            stack.callback(os.close, pidfd)
            if self._is_init(self._init_pid):
                stack.pop_all()
                self._init_pidfd = pidfd
        self._init_found = True

    def _is_init(self, pid: int) -> bool:
        """Whether the number is still that of the namespace's pid 1, and not given to another process since.

        Its parent is bubblewrap; or, where bubblewrap has ended and the launcher inherits orphans, the launcher.
        """
        try:
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return False
        fields = {line.partition(":")[0]: line.split()[1:] for line in status.splitlines()}
        parents = {str(self._popen.pid), str(os.getpid())}
        return fields["PPid"][0] in parents and fields["NSpid"][-1] == "1"


def _received_listener(channel: socket.socket) -> socket.socket:
    """The relay's socket, which the inner stage sent before it reported that it was ready."""
    try:
        _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
    except OSError as error:
        raise LaunchError("relay", error.strerror or "", errno=error.errno or 0) from error
    if not descriptors:
        raise LaunchError("relay", "no socket was handed out")
    listener = socket.socket(fileno=descriptors[0])
    listener.setblocking(False)
    return listener
