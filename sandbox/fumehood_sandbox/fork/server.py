"""The fork server: a zygote's sandbox and its fork supervisor, as the launcher drives them."""

from __future__ import annotations

import array
import contextlib
import os
import re
import socket
import subprocess
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack

from fumehood_sandbox.cgroup import Leaf
from fumehood_sandbox.errors import LaunchError
from fumehood_sandbox.fork.handshake import (
    APPROVE,
    APPROVED,
    FORK,
    FORKED,
    FORKED_DESCRIPTORS,
    LONGEST_ANSWER_BYTES,
    SUPERVISOR_STEP,
)
from fumehood_sandbox.fork.process import ForkedProcess
from fumehood_sandbox.launch import start_controlled
from fumehood_sandbox.outside.bubblewrap_arguments import FORK_SCRATCH, below_scratch
from fumehood_sandbox.outside.grants import check_policy
from fumehood_sandbox.outside.identity import identity_for
from fumehood_sandbox.outside.launching import Launching
from fumehood_sandbox.outside.stage_files import stage_command, stage_file
from fumehood_sandbox.policy import Policy
from fumehood_sandbox.process import SandboxedProcess
from fumehood_sandbox.program import PythonModule
from fumehood_sandbox.receipt import Layer, Receipt

_END_S = 5.0
"""For the death of a supervisor that was killed."""
_REAP_S = 0.02
"""For the status of one that ended by itself."""
_NPROC = re.compile(r"\bnproc=\d+, ")
"""A zygote's limit, which is its own and that of all its children together (`outside/rlimits.py`)."""
_ISOLATION = Layer(
    "isolation", "call: memory, user, mount, pid and ipc namespaces, /tmp, /dev/shm and a Landlock domain of its own"
)


class ForkServer:
    """A zygote and its fork supervisor. Owned: `close` it, which kills the supervisor; the zygote is the launcher's.

    In this order: start; poll `launching` for the zygote's process, as after `start`; `start_supervisor`; when the
    program has said in its own way that it is ready, `request_approval`; when that is answered, `request_child` as
    often as wanted. Each answer is awaited by polling `fileno()` for reading, and taken by `receive_answer`. Answers
    come in the order of the requests, of which several may be under way.

    Same thread rule as for `start`.
    """

    def __init__(self, policy: Policy, program: PythonModule) -> None:
        """Start the zygote.

        Raises:
            PolicyError: the policy must be changed, or the program doesn't fork.
            SandboxUnavailableError: this machine can't enforce it.
            LaunchError: bubblewrap could not be run.
        """
        self._policy = policy
        with ExitStack() as stack:
            self._below_scratch = below_scratch(check_policy(policy, stack))
        self._stack = ExitStack()
        self._receipt: Receipt | None = None
        """Of each child. One object, so that who serialises it need do so once."""
        self._leaves: deque[Leaf | None] = deque()
        """Of the children that were requested and are not there, in order."""
        self._supervisor: subprocess.Popen[bytes] | None = None
        try:
            self._requests, self._requests_theirs = self._pair()
            self._control, control_inside = self._pair()
            self._control_inode = os.fstat(control_inside.fileno()).st_ino
            self.launching: Launching = start_controlled(policy, program, control_inside.fileno())
            """The zygote's start."""
            control_inside.close()
        except BaseException:
            self._stack.close()
            raise

    def _pair(self) -> tuple[socket.socket, socket.socket]:
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for each in pair:
            self._stack.callback(each.close)
        return pair

    def start_supervisor(self, zygote: SandboxedProcess) -> None:
        """Start the supervisor of this zygote, which `launching` gave.

        Raises:
            LaunchError: it could not be started, or the zygote is gone.
        """
        identity = identity_for(self._policy.identity)
        try:
            namespace = os.open(f"/proc/{zygote.init_pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise LaunchError(SUPERVISOR_STEP, "the zygote is gone", errno=error.errno or 0) from error
        config = {
            "requests_fd": self._requests_theirs.fileno(),
            "control_fd": self._control.fileno(),
            "control_inode": self._control_inode,
            "user_namespace_fd": namespace,
            "init_pid": zygote.init_pid,
            "identity": (identity.user, identity.group),
            "scratch": FORK_SCRATCH,
            "below_scratch": self._below_scratch,
            "scratch_bytes": self._policy.limits.scratch_bytes,
            "scratch_files": self._policy.limits.scratch_files,
            "pipes": [os.fstat(fd).st_ino for fd in (zygote.stdin, zygote.stdout, zygote.stderr)],
        }
        try:
            code = stage_file("fork-supervisor", config)
            try:
                self._supervisor = subprocess.Popen(
                    stage_command(code),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(code, namespace, self._requests_theirs.fileno(), self._control.fileno()),
                    env={},
                    cwd="/",
                    process_group=0,
                )
            finally:
                os.close(code)
        except OSError as error:
            raise LaunchError(SUPERVISOR_STEP, error.strerror or "", errno=error.errno or 0) from error
        finally:
            os.close(namespace)
        self._control.close()
        self._requests_theirs.close()
        self._requests.setblocking(False)
        receipt = zygote.receipt
        layers = (*(self._layer_of_child(layer) for layer in receipt.layers), _ISOLATION)
        self._receipt = Receipt(receipt.level, receipt.backend, receipt.policy_digest, layers)

    def _layer_of_child(self, layer: Layer) -> Layer:
        """A zygote's layer as it is around its children: they may have as many processes as one call may."""
        if layer.name != "rlimits":
            return layer
        others = _NPROC.sub("", layer.detail)
        return Layer(layer.name, f"nproc={self._policy.limits.processes}, {others}", layer.weaker)

    def fileno(self) -> int:
        """Readable when there is an answer."""
        return self._requests.fileno()

    def request_approval(self) -> None:
        """Ask that the zygote be checked and made ready for children. Answered by None."""
        self._send(APPROVE)

    def request_child(self, leaf: Leaf | None = None) -> None:
        """Ask for one child. Answered by its process.

        With a `leaf` that can be joined, which this takes over, the child is in it before its call can come.

        Raises:
            LaunchError: the leaf is gone, or the request can't be sent. It is not answered, and the leaf is discarded.
        """
        try:
            self._send(FORK, leaf.tasks_fds() if leaf is not None else ())
        except OSError as error:
            if leaf is not None:
                leaf.discard()
            step = "cgroup" if leaf is not None else "fork"
            raise LaunchError(step, error.strerror or "", errno=error.errno or 0) from error
        self._leaves.append(leaf)

    def _send(self, request: bytes, fds: Sequence[int] = ()) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        with contextlib.suppress(ConnectionError):  # a supervisor that is gone is found by `receive_answer`
            self._requests.sendmsg([request], rights)

    def receive_answer(self) -> ForkedProcess | None:
        """Take one answer. Call it when `fileno()` is readable.

        Raises:
            BlockingIOError: there is none yet.
            LaunchError: what was asked for can't be had. The zygote is of no more use.
        """
        message, fds = self._receive_message()
        kind, *fields = message.split(b"\t")
        if kind == APPROVED:
            return None
        leaf = self._leaves.popleft() if self._leaves else None
        if kind == FORKED and len(fds) == FORKED_DESCRIPTORS and self._receipt is not None:
            child = ForkedProcess(int(fields[0]), (fds[0], fds[1], fds[2], fds[3]), self._receipt, leaf=leaf)
            if leaf is None or leaf.holds(child.pid):
                return child
            _forbid_reuse(leaf)
            child.close()
            raise LaunchError("cgroup", "the child is not in the leaf that was made for its call")
        for fd in fds:  # the process has no room for all of them: the child ends when these are closed
            os.close(fd)
        if leaf is not None:
            _forbid_reuse(leaf)
            leaf.discard()
        raise _failure(kind, fields) if message else self._supervisor_ended()

    def _supervisor_ended(self) -> LaunchError:
        status: int | None = None
        if self._supervisor is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._supervisor.wait(_REAP_S)  # it closed its socket a moment before it can be reaped
        if status is None:
            return LaunchError(SUPERVISOR_STEP, "it is gone")
        how = f"it was killed by signal {-status}" if status < 0 else f"it ended with status {status}"
        return LaunchError(SUPERVISOR_STEP, how)

    def _receive_message(self) -> tuple[bytes, array.array[int]]:
        ancillary_bytes = socket.CMSG_SPACE(FORKED_DESCRIPTORS * array.array("i").itemsize)
        try:
            message, ancillary, _, _ = self._requests.recvmsg(
                LONGEST_ANSWER_BYTES, ancillary_bytes, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            raise
        except OSError as error:
            raise LaunchError(SUPERVISOR_STEP, error.strerror or "", errno=error.errno or 0) from error
        fds = array.array("i")
        for _, _, data in ancillary:
            fds.frombytes(data)
        return message, fds

    def close(self) -> None:
        """Kill the supervisor. The zygote and its children are not ended by this. Idempotent."""
        self._stack.close()
        while self._leaves:
            leaf = self._leaves.popleft()
            if leaf is not None:
                leaf.discard()
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                supervisor.wait(_END_S)


def _failure(kind: bytes, fields: Sequence[bytes]) -> LaunchError:
    """The error that an answer without a child stands for."""
    if kind == FORKED:
        return LaunchError(SUPERVISOR_STEP, "too few descriptors are left for those of the child")
    step, problem, path, errno = (*(field.decode("utf-8", "replace") for field in fields), "", "", "", "0")[:4]
    return LaunchError(step, problem, path=path, errno=int(errno or 0))


def _forbid_reuse(leaf: Leaf) -> None:
    """Have no later child get this leaf: the process that was to join it may live, and join it yet."""
    leaf.reuse = None
