"""The fork supervisor: outside a sandbox whose program forks a process for each call, it sets up and checks each child.

A process of our code alone, one for each zygote. It joins the sandbox's user namespace, where it may mount and the
plugin's processes may not, and stays outside of all others. What the zygote was made of is not trusted: what a child
is given is decided, or found, from here. What a zygote looks at in its children afterwards is not; see docs/sandbox.md,
"Who is kept apart". Like the stages it is run by `python -I -S` and takes nothing but modules beside it:
`scratch_mounts` is what it gives, `inspection` what it checks, `handshake` what is said. Read `_approve`,
`_request_child`, `_set_up_child` and `_check_child` for the order.
"""

import _socket
import os
import select
import sys
import time

from fumehood_sandbox.fork.handshake import (
    APPROVE,
    APPROVED,
    CHILD_READY,
    CHILD_STARTED,
    CLONE_FAILED,
    CONTINUE,
    FAILED,
    FORK,
    FORKED,
    LONGEST_MESSAGE_BYTES,
    SUPERVISOR_STEP,
)
from fumehood_sandbox.fork.inspection import Inspection
from fumehood_sandbox.fork.scratch_mounts import ScratchMounts
from fumehood_sandbox.kernel.constants import (
    CMSG_SPACE_OF_DESCRIPTORS,
    PR_SET_PDEATHSIG,
    SCM_CREDENTIALS,
    SCM_PIDFD,
    SIGKILL,
    SO_PASSCRED,
    SO_PASSPIDFD,
)
from fumehood_sandbox.kernel.libc import StepError, function

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

_CHILD_TIMEOUT_S = 5.0
"""A child needs 3 ms to be there. One that takes this long is stopped, or its zygote is at fault."""
_MOST_PENDING = 4
"""While one is forked, another drops its privileges and a third is checked."""
_LONGEST_FIELD = 600
"""Characters. Four fields, of which each character may take four bytes or more, are one answer."""
_ENOPROTOOPT = 92


def main(config: "dict[str, Any]") -> "NoReturn":
    """Serve until the launcher goes."""
    function("prctl")(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    supervisor = _Supervisor(config)
    while True:
        try:
            supervisor.serve_once()
        except Exception as error:  # noqa: BLE001 - the launcher is to be told, whatever it is
            supervisor.fail(error)


class _Child:
    """One request and the child that comes of it."""

    def __init__(self, number: bytes) -> None:
        self.number = number
        """The request's, which the child repeats."""
        self.pid = 0
        """0 until the kernel has named it."""
        self.fds: list[int] = []
        """This side's ends of its stdin, stdout and stderr; a pidfd before them once it is known."""
        self.inodes: list[int] = []
        """Of its pipes."""
        self.deadline = time.monotonic() + _CHILD_TIMEOUT_S

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


class _Supervisor:
    """Works on several requests at once, and answers them in their order."""

    def __init__(self, config: "dict[str, Any]") -> None:
        self._config = config
        self._requests = _socket.socket(fileno=config["requests_fd"])
        self._control = _socket.socket(fileno=config["control_fd"])
        self._control.setsockopt(_socket.SOL_SOCKET, SO_PASSCRED, 1)
        _try_option(self._control, SO_PASSPIDFD)
        self._inspection = Inspection(config)
        self._mounts = ScratchMounts(config, self._inspection.proc)
        self._pending: list[_Child | bytes] = []
        """Children, and answers that wait for those of earlier requests."""
        self._count = 0

    def serve_once(self) -> None:
        """Wait for something to do, and do it."""
        ready = self._poll()
        if self._requests.fileno() in ready:
            self._receive_request()
        if self._control.fileno() in ready:
            self._receive_child_message()
        first = self._pending[0] if self._pending else None
        if isinstance(first, _Child) and first.pid and first.fds[2] in ready:
            self._run_step(first, self._check_child)
        while self._pending and isinstance(self._pending[0], bytes):
            self._requests.send(self._pending.pop(0))  # type: ignore[arg-type] # the type was asked for above

    def fail(self, error: Exception) -> "NoReturn":
        """Say why no further request can be answered, and end."""
        number = getattr(error, "errno", 0) or 0
        self._requests.send(_failed_answer((SUPERVISOR_STEP, f"{type(error).__name__}: {error}", "", str(number))))
        os._exit(1)

    def _poll(self) -> "set[int]":
        """What can be read. Waits without end only for requests."""
        poller = select.poll()
        pending = self._pending
        if len(pending) < _MOST_PENDING:
            poller.register(self._requests, select.POLLIN)
        if not pending:
            return {fd for fd, _ in poller.poll()}
        first = pending[0]
        if not isinstance(first, _Child):
            return set()
        if any(isinstance(each, _Child) and not each.pid for each in pending):
            poller.register(self._control, select.POLLIN)
        if first.pid:
            poller.register(first.fds[2], select.POLLIN)
        ready = poller.poll(max(0.0, first.deadline - time.monotonic()) * 1000)
        if not ready:
            self._run_step(first, _time_out)
        return {fd for fd, _ in ready}

    def _receive_request(self) -> None:
        request, ancillary, _, _ = self._requests.recvmsg(LONGEST_MESSAGE_BYTES, CMSG_SPACE_OF_DESCRIPTORS)
        tasks_fds = _descriptors(ancillary)
        if request == FORK:
            self._count += 1
            child = _Child(str(self._count).encode())
            self._pending.append(child)
            self._run_step(child, self._request_child, tasks_fds)
            for fd in tasks_fds:
                os.close(fd)
        elif request == APPROVE:
            child = _Child(b"")
            self._pending.append(child)
            self._run_step(child, self._approve)
        else:
            os._exit(0)  # the launcher has closed its end, or is gone

    def _run_step(self, child: "_Child", step: "Callable[..., bytes | None]", *arguments: object) -> None:
        """Do a step for a child. What it returns is the answer; if it fails, that it did. The child may be alive."""
        try:
            answer = step(child, *arguments)
        except StepError as error:
            answer = _failed_answer(error.fields)
        except Exception as error:  # noqa: BLE001 - a process that ends while it is checked, or a hostile one
            number = getattr(error, "errno", 0) or 0
            answer = _failed_answer((SUPERVISOR_STEP, f"{type(error).__name__}: {error}", "", str(number)))
        if answer is None:
            return
        if answer == FORKED:
            rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in child.fds)
            answer += b"\t" + str(child.pid).encode()
            self._pending.remove(child)
            self._requests.sendmsg([answer], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        else:
            self._pending[self._pending.index(child)] = answer
        child.close()

    def _approve(self, child: _Child) -> bytes:
        """Make sure that whatever the zygote's children share can't be written to, and that it has nothing else.

        Raises:
            StepError: it can't be had; `problem` is for the plugin's author.
        """
        del child
        init = self._config["init_pid"]
        processes = self._inspection.read_file(f"{init}/task/{init}/children").split()
        zygote = processes[0].decode()
        processes += self._inspection.read_file(f"{zygote}/task/{zygote}/children").split()
        if len(processes) != 1:
            raise StepError("zygote", f"{len(processes) - 1} other processes were left by its import")
        self._mounts.prepare_zygote(zygote)
        self._inspection.check_zygote(zygote)
        return APPROVED

    def _request_child(self, child: _Child, tasks_fds: "list[int]") -> None:
        """Send the zygote a request with the child's ends of three pipes, and the tasks files of its cgroup."""
        (in_child, in_ours), (out_ours, out_child), (err_ours, err_child) = (os.pipe2(os.O_CLOEXEC) for _ in range(3))
        child.fds += (in_ours, out_ours, err_ours)
        os.set_blocking(in_ours, False)  # a child of the same user can open its own stdin for writing, and fill it
        theirs = (in_child, out_child, err_child)
        rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (*theirs, *tasks_fds))
        try:
            self._control.sendmsg([child.number], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
            child.inodes = [os.fstat(fd).st_ino for fd in theirs]
        finally:
            for fd in theirs:
                os.close(fd)

    def _receive_child_message(self) -> None:
        """Take the first message of a child, or the zygote's for it. Children may overtake each other on their way."""
        try:
            message, ancillary, _, _ = self._control.recvmsg(LONGEST_MESSAGE_BYTES, CMSG_SPACE_OF_DESCRIPTORS)
        except ConnectionResetError:
            message, ancillary = b"", []  # the zygote ended with a request unread: the same as its end without one
        for fd in _descriptors(ancillary):  # nobody was asked for any: kept, they would fill this process's table
            os.close(fd)
        number = message[1:].partition(b" ")[0]
        unnamed = [each for each in self._pending if isinstance(each, _Child) and not each.pid]
        child = next((each for each in unnamed if each.number == number), unnamed[0])
        self._run_step(child, self._set_up_child, message, ancillary)

    def _set_up_child(self, child: _Child, message: bytes, ancillary: "list[tuple[int, int, bytes]]") -> None:
        """Learn from the kernel which process it is, map its user, mount its scratch, let it drop its privileges."""
        found = {kind: int.from_bytes(data[:4], sys.byteorder) for _, kind, data in ancillary}
        if SCM_PIDFD in found:
            child.fds.insert(0, found[SCM_PIDFD])
        if message != CHILD_STARTED + child.number:
            problem = message.rpartition(b" ")[2]
            number = int(problem) if message[:1] == CLONE_FAILED and problem.isdigit() else 0
            raise StepError("fork", f"refused: {os.strerror(number)}" if number else "the zygote is gone", "", number)
        if SCM_CREDENTIALS not in found:
            raise StepError("fork", "the kernel did not name the child")
        # The kernel says who wrote, in numbers of this process's own namespace.
        child.pid = found[SCM_CREDENTIALS]
        if SCM_PIDFD not in found:
            child.fds.insert(0, os.pidfd_open(child.pid))
            # The number may have been given to another process before the pidfd held it.
            if self._inspection.parent_of(str(child.pid)) != self._inspection.zygote:
                raise StepError("fork", f"process {child.pid} is not the zygote's child")
        pidfd, stdin, _, _ = child.fds
        self._mounts.set_up_child(child.pid, pidfd)
        os.write(stdin, CONTINUE)

    def _check_child(self, child: _Child) -> bytes:
        """Check what it is once it has dropped its privileges, and let it go on."""
        _, stdin, stdout, _ = child.fds
        if os.read(stdout, 1) != CHILD_READY:
            raise StepError("fork", "the child did not give up what it must")
        self._inspection.check_child(str(child.pid), child.inodes)
        os.write(stdin, CONTINUE)
        os.set_blocking(stdin, True)
        return FORKED


def _time_out(child: _Child) -> None:
    if child.pid:
        raise StepError("fork", f"the child did not give up what it must within {_CHILD_TIMEOUT_S:g} s")
    raise StepError("fork", f"no child after {_CHILD_TIMEOUT_S:g} s")


def _descriptors(ancillary: "list[tuple[int, int, bytes]]") -> "list[int]":
    data = b"".join(part for _, kind, part in ancillary if kind == _socket.SCM_RIGHTS)
    return [int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data), 4)]


def _failed_answer(fields: "tuple[str, ...]") -> bytes:
    # A path may have any character in it but 0, and be of any length: what an import names its files is its own affair.
    plain = (each.replace("\t", " ").replace("\n", " ")[:_LONGEST_FIELD] for each in fields)
    return "\t".join((FAILED.decode(), *plain)).encode("utf-8", "backslashreplace")


def _try_option(sock: "_socket.socket", option: int) -> None:
    try:
        sock.setsockopt(_socket.SOL_SOCKET, option, 1)
    except OSError as error:
        if error.errno != _ENOPROTOOPT:  # SO_PASSPIDFD is of Linux 6.5; see `_set_up_child`
            raise
