"""Outside a sandbox whose program forks a process for each call: gives each child its own places, and looks at it.

A process of our code alone, one for each zygote. It moves into the sandbox's user namespace, where it may mount and the
plugin's processes may not, and stays outside of all others. What the zygote was made of is not trusted: what a child
is given is decided, or found, from here. What a zygote looks at in its children afterwards is not; see docs/sandbox.md,
"Who is kept apart". Like the stages it is run by `python -I -S` and takes nothing but modules beside it: `places` is
what it gives, `inspection` what it looks at. Read `_approve`, `_order`, `_meet` and `_finish` for the order.
"""

import _socket
import os
import select
import sys
import time

from fumehood_sandbox.fork.inspection import Inspection
from fumehood_sandbox.fork.scratch_mounts import Places
from fumehood_sandbox.kernel.libc import StepError, function

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

APPROVE, BEAR = b"approve", b"bear"
"""What it is asked: to make a zygote ready for its first child; to see one child into the world."""
APPROVED, BORN, FAILED = b"approved", b"born", b"failed"
"""What it answers. `BORN` brings a pidfd and this side's ends of the child's pipes."""

_CHILD_IS_THERE, _GO, _CHILD_IS_SET, _REFUSED = b"b", b"g", b"s", b"x"
_PR_SET_PDEATHSIG = 1
_SIGKILL = 9
_SCM_CREDENTIALS, _SCM_PIDFD = 2, 4
_SO_PASSCRED, _SO_PASSPIDFD = 16, 76
_ANSWER_S = 5.0
"""A child needs 3 ms to be there. One that takes this long is stopped, or its zygote is at fault."""
_MOST_UNDER_WAY = 4
"""While one is forked, another gives up its rights and a third is looked at."""
_LONGEST_BYTES = 64
_LONGEST_FIELD = 600
"""Characters. Four fields, of which each character may take four bytes or more, are one answer."""
_ANCILLARY_BYTES = 128
_ENOPROTOOPT = 92


def main(config: "dict[str, Any]") -> "NoReturn":
    """Serve until the launcher goes."""
    function("prctl")(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    attendant = _Attendant(config)
    while True:
        attendant.turn()


class _Child:
    """What becomes of one order."""

    def __init__(self, number: bytes) -> None:
        self.number = number
        """The order's, which the child repeats."""
        self.pid = 0
        """0 until it has been met."""
        self.fds: list[int] = []
        """This side's ends of its stdin, stdout and stderr; a pidfd before them once it has been met."""
        self.inodes: list[int] = []
        """Of its pipes."""
        self.deadline = time.monotonic() + _ANSWER_S

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


class _Attendant:
    """Works on several orders at once, and answers them in their order."""

    def __init__(self, config: "dict[str, Any]") -> None:
        self._config = config
        self._orders = _socket.socket(fileno=config["orders_fd"])
        self._control = _socket.socket(fileno=config["control_fd"])
        self._control.setsockopt(_socket.SOL_SOCKET, _SO_PASSCRED, 1)
        _try_option(self._control, _SO_PASSPIDFD)
        self._look = Inspection(config)
        self._places = Places(config, self._look.proc)
        self._under_way: list[_Child | bytes] = []
        """Children, and answers that wait for those of earlier orders."""
        self._count = 0

    def turn(self) -> None:
        """Wait for something to do, and do it."""
        ready = self._ready()
        if self._orders.fileno() in ready:
            self._take_order()
        if self._control.fileno() in ready:
            self._hear()
        first = self._under_way[0] if self._under_way else None
        if isinstance(first, _Child) and first.pid and first.fds[2] in ready:
            self._guarded(first, self._finish)
        while self._under_way and isinstance(self._under_way[0], bytes):
            self._orders.send(self._under_way.pop(0))  # type: ignore[arg-type] # it was looked at

    def _ready(self) -> "set[int]":
        """What can be read. Only for orders it waits without end."""
        poller = select.poll()
        under_way = self._under_way
        if len(under_way) < _MOST_UNDER_WAY:
            poller.register(self._orders, select.POLLIN)
        if not under_way:
            return {fd for fd, _ in poller.poll()}
        first = under_way[0]
        if not isinstance(first, _Child):
            return set()
        if any(isinstance(each, _Child) and not each.pid for each in under_way):
            poller.register(self._control, select.POLLIN)
        if first.pid:
            poller.register(first.fds[2], select.POLLIN)
        ready = poller.poll(max(0.0, first.deadline - time.monotonic()) * 1000)
        if not ready:
            self._guarded(first, _too_late)
        return {fd for fd, _ in ready}

    def _take_order(self) -> None:
        order, ancillary, _, _ = self._orders.recvmsg(_LONGEST_BYTES, _ANCILLARY_BYTES)
        doors = _descriptors(ancillary)
        if order == BEAR:
            self._count += 1
            child = _Child(str(self._count).encode())
            self._under_way.append(child)
            self._guarded(child, self._order, doors)
            for door in doors:
                os.close(door)
        elif order == APPROVE:
            child = _Child(b"")
            self._under_way.append(child)
            self._guarded(child, self._approve)
        else:
            os._exit(0)  # the launcher is gone, or doesn't want this one any more

    def _guarded(self, child: "_Child", step: "Callable[..., bytes | None]", *arguments: object) -> None:
        """Do a step for a child. What it returns is the answer; if it fails, that it did. The child may be alive."""
        try:
            answer = step(child, *arguments)
        except StepError as error:
            answer = _told(error.fields)
        except Exception as error:  # noqa: BLE001 - a process that ends while it is looked at, or a hostile one
            number = getattr(error, "errno", 0) or 0
            answer = _told(("attendant", f"{type(error).__name__}: {error}", "", str(number)))
        if answer is None:
            return
        if answer == BORN:
            rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in child.fds)
            answer += b"\t" + str(child.pid).encode()
            self._under_way.remove(child)
            self._orders.sendmsg([answer], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        else:
            self._under_way[self._under_way.index(child)] = answer
        child.close()

    def _approve(self, child: _Child) -> bytes:
        """Make sure that whatever the zygote's children share can't be written to, and that it has nothing else.

        Raises:
            StepError: it can't be had; `problem` is for the plugin's author.
        """
        del child
        init = self._config["init_pid"]
        processes = self._look.read(f"{init}/task/{init}/children").split()
        zygote = processes[0].decode()
        processes += self._look.read(f"{zygote}/task/{zygote}/children").split()
        if len(processes) != 1:
            raise StepError("zygote", f"{len(processes) - 1} other processes were left by its import")
        self._places.prepare(zygote)
        self._look.look_at_zygote(zygote)
        return APPROVED

    def _order(self, child: _Child, doors: "list[int]") -> None:
        """Send the zygote an order with the child's ends of three pipes, and the doors of its cgroup."""
        (in_child, in_ours), (out_ours, out_child), (err_ours, err_child) = (os.pipe2(os.O_CLOEXEC) for _ in range(3))
        child.fds += (in_ours, out_ours, err_ours)
        os.set_blocking(in_ours, False)  # a child of the same user can open its own stdin for writing, and fill it
        theirs = (in_child, out_child, err_child)
        rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (*theirs, *doors))
        try:
            self._control.sendmsg([child.number], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
            child.inodes = [os.fstat(fd).st_ino for fd in theirs]
        finally:
            for fd in theirs:
                os.close(fd)

    def _hear(self) -> None:
        """Take what a child, or the zygote for it, says first. Children may overtake each other on their way here."""
        message, ancillary, _, _ = self._control.recvmsg(_LONGEST_BYTES, _ANCILLARY_BYTES)
        for fd in _descriptors(ancillary):  # nobody was asked for any: kept, they would fill this process's table
            os.close(fd)
        number = message[1:].partition(b" ")[0]
        unmet = [each for each in self._under_way if isinstance(each, _Child) and not each.pid]
        child = next((each for each in unmet if each.number == number), unmet[0])
        self._guarded(child, self._meet, message, ancillary)

    def _meet(self, child: _Child, message: bytes, ancillary: "list[tuple[int, int, bytes]]") -> None:
        """Learn who it is, give it its places, and let it set itself up."""
        found = {kind: int.from_bytes(data[:4], sys.byteorder) for _, kind, data in ancillary}
        if _SCM_PIDFD in found:
            child.fds.insert(0, found[_SCM_PIDFD])
        if message != _CHILD_IS_THERE + child.number:
            problem = message.rpartition(b" ")[2]
            number = int(problem) if message[:1] == _REFUSED and problem.isdigit() else 0
            raise StepError("fork", f"refused: {os.strerror(number)}" if number else "the zygote is gone", "", number)
        if _SCM_CREDENTIALS not in found:
            raise StepError("fork", "the kernel did not name the child")
        # The kernel says who wrote, in numbers of this process's own namespace.
        child.pid = found[_SCM_CREDENTIALS]
        if _SCM_PIDFD not in found:
            child.fds.insert(0, os.pidfd_open(child.pid))
            # The number may have been given to another process before the pidfd held it.
            if self._look.parent(str(child.pid)) != self._look.zygote:
                raise StepError("fork", f"process {child.pid} is not the zygote's child")
        pidfd, stdin, _, _ = child.fds
        self._places.give(child.pid, pidfd)
        os.write(stdin, _GO)

    def _finish(self, child: _Child) -> bytes:
        """Look at what it is once it is set up, and let it go on."""
        _, stdin, stdout, _ = child.fds
        if os.read(stdout, 1) != _CHILD_IS_SET:
            raise StepError("fork", "the child did not give up what it must")
        self._look.look_at_child(str(child.pid), child.inodes)
        os.write(stdin, _GO)
        os.set_blocking(stdin, True)
        return BORN


def _too_late(child: _Child) -> None:
    if child.pid:
        raise StepError("fork", f"the child did not give up what it must within {_ANSWER_S:g} s")
    raise StepError("fork", f"no child after {_ANSWER_S:g} s")


def _descriptors(ancillary: "list[tuple[int, int, bytes]]") -> "list[int]":
    data = b"".join(part for _, kind, part in ancillary if kind == _socket.SCM_RIGHTS)
    return [int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data), 4)]


def _told(fields: "tuple[str, ...]") -> bytes:
    # A path may have any character in it but 0, and be of any length: what an import names its files is its own affair.
    plain = (each.replace("\t", " ").replace("\n", " ")[:_LONGEST_FIELD] for each in fields)
    return "\t".join((FAILED.decode(), *plain)).encode("utf-8", "backslashreplace")


def _try_option(sock: "_socket.socket", option: int) -> None:
    try:
        sock.setsockopt(_socket.SOL_SOCKET, option, 1)
    except OSError as error:
        if error.errno != _ENOPROTOOPT:  # SO_PASSPIDFD is of Linux 6.5; see `_meet`
            raise
