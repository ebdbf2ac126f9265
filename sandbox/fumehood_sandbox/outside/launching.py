"""A start under way: what was started, what it has reported, and what becomes of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import ClassVar, Final

from fumehood_sandbox.cgroup import BOUNDING, Control
from fumehood_sandbox.errors import LaunchError, SandboxError, SandboxUnavailableError
from fumehood_sandbox.inside.idmapped_mounts import STEP as IDMAPPED_MOUNT
from fumehood_sandbox.outside.bubblewrap_process import SandboxedProcess, ends_within, reap
from fumehood_sandbox.outside.cgroup_attach import Entrance, Stepped
from fumehood_sandbox.receipt import Layer, Receipt

_REAP_TIMEOUT_S: Final = 10.0
"""For the death of what was just killed; see SandboxedProcess.close."""
_LONGEST_COMPLAINT_BYTES: Final = 4096
_LONGEST_STATUS_BYTES: Final = 64 * 1024
"""The stage writes about 1 KiB; all of it comes before the program runs, so nobody hostile writes here."""
_INNER_LAYERS: Final = ("rlimits", "identity", "capabilities", "landlock", "descriptors", "seccomp")


class Launching:
    """A start under way. Poll `fileno()` for reading, then `advance()`; or `abort()`."""

    _STEP: ClassVar = "namespaces"
    _STARTER: ClassVar = "bubblewrap"
    """What an error names when whoever should report has ended without a word."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        status_fd: int,
        info_fd: int,
        receipt: Receipt,
        entrance: Entrance | Stepped | None,
        *,
        relay_channel: socket.socket | None = None,
    ) -> None:
        """Take over the process, both pipes, and the ways into the leaf and to the relay. Made by `start` alone."""
        self._popen = popen
        self._status_fd = status_fd
        self._info_fd = info_fd
        self._receipt = receipt
        self._entrance = entrance
        self._relay_channel = relay_channel
        self._status = bytearray()
        self._over = False
        self._init_pid = 0
        self._init_pidfd: int | None = None
        self._init_found = False
        """Whether it is held, or was gone before it could be."""

    def fileno(self) -> int:
        """The status pipe. Readable when `advance` has something to do."""
        return self._status_fd

    def advance(self) -> SandboxedProcess | None:
        """Take in what was reported. Never blocks, but for the death of what failed to start.

        Returns:
            The process once every layer is in force and the program is about to run, or None: not yet.

        Raises:
            LaunchError: a step failed. What was started is dead.
        """
        if self._over:
            raise LaunchError("launch", "it is over")
        while True:
            try:
                part = os.read(self._status_fd, 4096)
            except BlockingIOError:
                return None
            if not part:
                break
            self._status += part
            if len(self._status) > _LONGEST_STATUS_BYTES:
                self._fail(LaunchError("status", "more was reported than any stage writes"))
        try:
            return self._finish()
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Kill what was started and wait for its end. Idempotent; does nothing once `advance` gave the process away."""
        if self._over:
            return
        self._over = True
        os.close(self._status_fd)  # before the kill: see `_ready` in the inner stage
        for stream in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if stream is not None:
                stream.close()  # before the kill as well, which needs descriptors that there may be no others for
        self._kill()
        if self._init_pidfd is not None:
            reap(self._init_pidfd, _REAP_TIMEOUT_S)
            os.close(self._init_pidfd)
        os.close(self._info_fd)
        if self._relay_channel is not None:
            self._relay_channel.close()
        if self._entrance is not None:
            self._entrance.abandon()

    def _kill(self) -> None:
        """Kill what was started, and reap bubblewrap.

        bubblewrap's child asks to die with it only late in its start. Before bubblewrap has named it, it is in
        bubblewrap's process group, waits to be let go on, and is killed with the group; afterwards it is killed by its
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
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(self._init_pidfd, signal.SIGKILL)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._popen.pid, signal.SIGKILL)
                ends_within(ended, _REAP_TIMEOUT_S)
        finally:
            os.close(ended)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(_REAP_TIMEOUT_S)
        if self._init_pidfd is None:
            # A child that bubblewrap had not named, where the launcher inherits orphans. It is being killed.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PGID, self._popen.pid, os.WEXITED)

    def _fail(self, error: LaunchError) -> None:
        self.abort()
        raise error

    def _finish(self) -> SandboxedProcess:
        """The pipe is closed: everybody who could report has become the program, or is dead."""
        lines = [line.split("\t") for line in self._status.decode("utf-8", "replace").splitlines()]
        for line in lines:
            if line[0] == "error":
                raise self._error_of(line)
        not_in = self._entrance.finish() if self._entrance is not None else None
        if not_in is not None:
            raise LaunchError(
                "cgroup", f"bubblewrap can't be put into its leaf: {not_in.strerror}", errno=not_in.errno or 0
            )
        if ["ready"] not in lines:
            raise LaunchError(self._STEP, self._complaint())
        process = self._made(lines)
        self._over = True
        os.close(self._status_fd)
        os.close(self._info_fd)
        if self._relay_channel is not None:
            self._relay_channel.close()
        return process

    def _made(self, lines: list[list[str]]) -> SandboxedProcess:
        """The process, from the reports of a start that has worked."""
        reported = {line[1]: line[2] for line in lines if line[0] == "layer"}
        names = _INNER_LAYERS if self._relay_channel is None else (*_INNER_LAYERS, "relay")
        missing = [name for name in names if name not in reported]
        if missing:
            raise LaunchError("status", f"not reported: {', '.join(missing)}")
        self._find_init()
        receipt = Receipt(
            self._receipt.level,
            self._receipt.backend,
            self._receipt.policy_digest,
            (*self._receipt.layers, *(self._layer(name, reported[name]) for name in names)),
        )
        leaf = self._entrance.leaf if self._entrance is not None else None
        relay = _received(self._relay_channel) if self._relay_channel is not None else None
        return SandboxedProcess(
            self._popen, self._init_pid, self._init_pidfd, receipt, self._fds(), leaf=leaf, relay=relay
        )

    def _fds(self) -> tuple[int, int, int]:
        """This side's ends of the program's pipes, taken from the objects around them."""
        popen = self._popen
        assert popen.stdin and popen.stdout and popen.stderr  # noqa: S101, PT018 - all three were asked for
        streams = (popen.stdin, popen.stdout, popen.stderr)
        fds: list[int] = []
        try:
            for stream in streams:
                fds.append(os.dup(stream.fileno()))
                stream.close()
        except OSError:
            for fd in fds:
                os.close(fd)
            raise
        return fds[0], fds[1], fds[2]

    def _layer(self, name: str, detail: str) -> Layer:
        controls = self._entrance.leaf.controls if self._entrance is not None else frozenset[Control]()
        if name != "rlimits" or controls >= BOUNDING:
            return Layer(name, detail)
        missing = ", ".join(sorted(BOUNDING - controls))
        return Layer(name, f"{detail}; of each process, since no cgroup bounds the tree's {missing}", weaker=True)

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
            pidfd = os.pidfd_open(self._init_pid)
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

    def _complaint(self) -> str:
        """What bubblewrap said. It has the program's stderr until the program runs, which never happened."""
        self._kill()
        assert self._popen.stderr is not None  # noqa: S101 - it was asked for
        fd = self._popen.stderr.fileno()
        os.set_blocking(fd, False)
        with contextlib.suppress(BlockingIOError):
            text = os.read(fd, _LONGEST_COMPLAINT_BYTES).decode("utf-8", "replace").strip()
            if text:
                return text
        return f"{self._STARTER} ended with status {self._popen.returncode} and said nothing"

    def _error_of(self, line: list[str]) -> SandboxError:
        """The error that a stage reported: step, problem, path, errno."""
        _, step, problem, path, errno = (*line, "", "", "", "0")[:5]
        if step == IDMAPPED_MOUNT:
            return SandboxUnavailableError(
                step,
                f"{path} belongs to another user than the program's, and can't be mapped to it: {problem}",
                "give it to the program's user with chown -R (docs/sandbox.md, Identity), or run the sidecar as its "
                "owner, or as root with CAP_SYS_ADMIN on a file system that has idmapped mounts",
            )
        return LaunchError(step, problem, path=path, errno=int(errno or 0))


def _received(channel: socket.socket) -> socket.socket:
    """The relay's socket, which the inner stage sent before it said that it was ready."""
    try:
        _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
    except OSError as error:
        raise LaunchError("relay", error.strerror or "", errno=error.errno or 0) from error
    if not descriptors:
        raise LaunchError("relay", "no socket was handed out")
    listener = socket.socket(fileno=descriptors[0])
    listener.setblocking(False)
    return listener
