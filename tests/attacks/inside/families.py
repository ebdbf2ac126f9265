"""Sockets of every family and type: there is no network to look at, and no other side to reach."""

from __future__ import annotations

import ctypes
import socket

from tests.attacks.inside.kit import EVERYWHERE, Arena, Pair, attack, outcome, syscall

_LAST_FAMILY = 45
_TYPES = {"stream": 1, "datagram": 2, "raw": 3, "rdm": 4, "seqpacket": 5, "dccp": 6, "packet": 10}
_UNIX, _INET, _INET6, _NETLINK, _PACKET, _ALG, _VSOCK = 1, 2, 10, 16, 17, 38, 40
_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000


def _pair(family: int, kind: int, protocol: int = 0) -> str:
    return syscall("socketpair", family, kind, protocol, (ctypes.c_int * 2)())


def _connected() -> str:
    """What event loops wake themselves with."""
    one, other = socket.socketpair()
    one.sendall(b"x")
    return "done" if other.recv(1) == b"x" else "a pair that carries nothing"


def _without_relay(family: int) -> tuple[str, ...]:
    """For a relay there are TCP sockets; `relay` looks at what else they would do."""
    return EVERYWHERE[:-1] if family in {_INET, _INET6} else EVERYWHERE


def _of_family(family: int) -> None:
    @attack("S401", "EPERM", name=f"socket_of_family_{family}", levels=_without_relay(family))
    def single(_: Arena) -> Pair:
        found = {syscall("socket", family, kind, 0) for kind in _TYPES.values()}
        return found.pop() if len(found) == 1 else str(found), _connected()

    @attack("S402", "EPERM", name=f"pair_of_family_{family}")
    def double(_: Arena) -> Pair:
        kinds = [kind for name, kind in _TYPES.items() if family != _UNIX or name not in {"stream", "seqpacket"}]
        found = {_pair(family, kind) for kind in kinds}
        return found.pop() if len(found) == 1 else str(found), _pair(_UNIX, _TYPES["seqpacket"])


for _family in range(_LAST_FAMILY + 1):
    _of_family(_family)


def _special(name: str, family: int, kind: int, protocol: int) -> None:
    @attack("S401", "EPERM", name=name, levels=_without_relay(family & 0xFF))
    def tried(_: Arena) -> Pair:
        return syscall("socket", family, kind, protocol), _connected()


_special("raw_icmp", _INET, _TYPES["raw"], 1)
_special("ping", _INET, _TYPES["datagram"], 1)
_special("raw_icmp6", _INET6, _TYPES["raw"], 58)
_special("mptcp", _INET, _TYPES["stream"], 262)
_special("sctp", _INET, _TYPES["seqpacket"], 132)
_special("netlink_route", _NETLINK, _TYPES["raw"], 0)
_special("netlink_diag", _NETLINK, _TYPES["raw"], 4)
_special("netlink_audit", _NETLINK, _TYPES["raw"], 9)
_special("netlink_uevent", _NETLINK, _TYPES["datagram"], 15)
_special("netlink_netfilter", _NETLINK, _TYPES["raw"], 12)
_special("packet_all", _PACKET, _TYPES["raw"], 0x0300)
_special("algorithm", _ALG, _TYPES["seqpacket"], 0)
_special("vsock_stream", _VSOCK, _TYPES["stream"], 0)
_special("family_with_a_high_bit", _INET | 1 << 40, _TYPES["stream"], 0)


def _unix_pair(name: str, kind: int) -> None:
    @attack("S402", "EPERM", name=f"unix_pair_{name}")
    def tried(_: Arena) -> Pair:
        return _pair(_UNIX, kind), _pair(_UNIX, _TYPES["stream"] | _NONBLOCK_CLOEXEC)


_unix_pair("datagram", _TYPES["datagram"])
_unix_pair("datagram_with_flags", _TYPES["datagram"] | _NONBLOCK_CLOEXEC)
_unix_pair("datagram_with_a_high_bit", _TYPES["datagram"] | 1 << 40)
_unix_pair("raw_which_is_a_datagram_pair", _TYPES["raw"])
_unix_pair("unknown_flags", _TYPES["stream"] | 0o100)


@attack("S402", "EPERM")
def unix_pair_by_a_family_with_a_high_bit(_: Arena) -> Pair:
    return _pair(_UNIX | 1 << 40, _TYPES["datagram"]), _pair(_UNIX | 1 << 40, _TYPES["stream"])


@attack("S401", "EPERM")
def families_that_do_not_exist_yet(_: Arena) -> Pair:
    found = {syscall("socket", family, 1, 0) for family in (*range(_LAST_FAMILY + 1, 256), -1)}
    return found.pop() if len(found) == 1 else str(found), _connected()


@attack("S401", "EPERM", levels=_without_relay(_INET))
def direct_dial(_: Arena) -> Pair:
    """With no proxy named anywhere: what a program does that wants out."""
    return outcome(lambda: socket.create_connection(("127.0.0.1", 1), timeout=1)), _connected()


@attack("S401", "none")
def interfaces(_: Arena) -> Pair:
    """Were there a socket, it would find a loopback interface that is down, and no route."""
    with open("/proc/net/dev", encoding="ascii") as stream:
        names = {line.split(":")[0].strip() for line in stream if ":" in line}
    with open("/proc/net/route", encoding="ascii") as stream:
        routes = stream.read().splitlines()[1:]
    return "none" if names == {"lo"} and not routes else f"{names} {routes}", "done"
