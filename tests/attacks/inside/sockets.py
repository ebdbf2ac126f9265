"""What the one kind of socket that exists, a connected pair, could be turned into."""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Callable

from tests.attacks.inside.kit import READING, Arena, Pair, attack, outcome, syscall

_UNCONNECT = bytes(16)


def _path(arena: Arena) -> bytes:
    return b"\x01\x00" + f"{arena.outside}/socket".encode() + b"\0"


def _abstract(arena: Arena) -> bytes:
    return b"\x01\x00\x00" + arena.lure.encode()


def _ends() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _echo(one: socket.socket, other: socket.socket) -> str:
    one.send(b"x")
    return "done" if other.recv(8) == b"x" else "the pair is broken"


_DENIALS = {"connect": ("EPERM", "EISCONN", "EINVAL", "ENOENT", "ECONNREFUSED")}
"""Where there are TCP sockets the call exists, and the kernel knows that a pair's end is connected already."""


def _on_an_end(name: str, call: str, *more: object, address: Callable[[Arena], bytes] = _path) -> None:
    @attack("S403", *_DENIALS.get(call, ("EPERM",)), name=f"{name}_of_a_pairs_end")
    def tried(arena: Arena) -> Pair:
        one, other = _ends()
        arguments = more or (address(arena), len(address(arena)))
        return syscall(call, one.fileno(), *arguments), _echo(one, other)


_on_an_end("connect_to_a_path", "connect")
_on_an_end("connect_to_an_abstract_name", "connect", address=_abstract)
_on_an_end("unconnect", "connect", _UNCONNECT, len(_UNCONNECT))
_on_an_end("bind_to_a_path", "bind")
_on_an_end("bind_to_an_abstract_name", "bind", address=_abstract)
_on_an_end("listen", "listen", 1)
_on_an_end("accept", "accept", 0, 0)
_on_an_end("accept4", "accept4", 0, 0, 0)


def _send_elsewhere(kind: str, family_type: int) -> None:
    @attack("S403", "EISCONN", "EOPNOTSUPP", "ENOTSUP", "not outside", name=f"send_elsewhere_from_a_{kind}_pair")
    def tried(arena: Arena) -> Pair:
        """A name beside the message. A stream refuses it; a seqpacket pair sends to its other end."""
        one, other = socket.socketpair(socket.AF_UNIX, family_type)
        address = _path(arena)
        found = syscall("sendto", one.fileno(), b"y", 1, 0, address, len(address))
        if found == "done":
            found = "not outside" if other.recv(8) == b"y" else "outside"
        return found, _echo(one, other)


_send_elsewhere("stream", socket.SOCK_STREAM)
_send_elsewhere("seqpacket", socket.SOCK_SEQPACKET)


@attack("S403", "EPERM", "EISCONN", levels=READING)
def connect_to_a_socket_in_a_grant(arena: Arena) -> Pair:
    """One that somebody outside listens on, in a folder that is granted for reading: it can be seen, and no more."""
    one, other = _ends()
    address = b"\x01\x00" + f"{arena.read}/socket".encode() + b"\0"
    return syscall("connect", one.fileno(), address, len(address)), (
        _echo(one, other) if os.path.exists(f"{arena.read}/socket") else "it is not there"
    )


@attack("S403", "ENOENT", "EACCES", "EPERM")
def name_of_a_socket_outside(arena: Arena) -> Pair:
    """A listening socket lies in the folder beside the grants; it can't even be seen."""
    return outcome(lambda: os.stat(f"{arena.outside}/socket")), outcome(lambda: os.stat(arena.own))


@attack("S403", "EBADF")
def pass_a_descriptor_that_is_not_ones_own(_: Arena) -> Pair:
    """Descriptors travel over a pair, but only those that the sender has."""
    one, other = socket.socketpair()

    def send(fd: int) -> None:
        one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])

    control = outcome(lambda: send(0))
    other.recv(8)
    return outcome(lambda: send(9999)), control


@attack("S403", "EPERM", "EINVAL")
def credentials_of_another(_: Arena) -> Pair:
    """Somebody else's process and user beside a message, as services check them."""
    one, _other = socket.socketpair()

    def send(pid: int, user: int) -> None:
        one.sendmsg([b"x"], [(socket.SOL_SOCKET, 2, array.array("i", [pid, user, user]))])

    return outcome(lambda: send(1, 0)), outcome(lambda: send(os.getpid(), os.getuid()))
