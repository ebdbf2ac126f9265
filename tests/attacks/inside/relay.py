"""What a program gains that has TCP sockets for a relay: the relay, and nobody else."""

from __future__ import annotations

import os
import socket
import struct

from tests.attacks.inside.kit import RELAY, Arena, Pair, attack, outcome, syscall

_LAST_FAMILY = 45
_INTERNET = (2, 10)
_STREAM, _DATAGRAM, _RAW = 1, 2, 3
_FAST_OPEN = 0x20000000
_MPTCP, _SCTP, _UDP, _ICMP = 262, 132, 17, 1
_REFUSED = ("EACCES", "EPERM", "ECONNREFUSED", "ENETUNREACH", "EADDRNOTAVAIL", "EINVAL", "EHOSTUNREACH")
_ONLY = (RELAY,)


def _relay() -> tuple[str, int]:
    host, _, port = os.environ["HTTP_PROXY"].removeprefix("http://").partition(":")
    return host, int(port.rstrip("/"))


def _connect(address: tuple[str, int], family: int = socket.AF_INET) -> str:
    def dial() -> None:
        with socket.socket(family, socket.SOCK_STREAM) as made:
            made.settimeout(20)
            made.connect(address)

    return outcome(dial)


def _reach_the_relay() -> str:
    """The control: this is what the socket is for."""
    return _connect(_relay())


def _dial(name: str, address: tuple[str, int], family: int = socket.AF_INET) -> None:
    @attack("S404", *_REFUSED, name=f"dial_{name}", levels=_ONLY)
    def tried(_: Arena) -> Pair:
        return _connect(address, family), _reach_the_relay()


_dial("port_next_to_the_relays", ("127.0.0.1", 1))
_dial("public_address", ("192.0.2.1", 80))
_dial("metadata_address", ("169.254.169.254", 80))
_dial("private_address", ("10.0.0.1", 80))
_dial("loopback_by_another_name", ("127.1.2.3", 80))
_dial("any_address", ("0.0.0.0", 80))  # noqa: S104 - dialled, not bound
_dial("loopback_of_ipv6", ("::1", 80), socket.AF_INET6)
_dial("mapped_address", ("::ffff:192.0.2.1", 80), socket.AF_INET6)
_dial("link_local_address", ("fe80::1", 80), socket.AF_INET6)


@attack("S404", *_REFUSED, levels=_ONLY)
def dial_what_listens_outside(arena: Arena) -> Pair:
    """A service on the launcher's own loopback: another machine's, as seen from here."""
    return _connect(("127.0.0.1", arena.lure_port)), _reach_the_relay()


@attack("S404", *_REFUSED, "EOPNOTSUPP", "ENOTSUP", levels=_ONLY)
def dial_with_the_first_bytes(arena: Arena) -> Pair:
    """TCP fast open: a connection by sendto(2), where no rule on connecting looks."""
    address = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(arena.lure_port), socket.inet_aton("127.0.0.1"))
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found = syscall("sendto", made.fileno(), b"x", 1, _FAST_OPEN, address, len(address))
    return found, _reach_the_relay()


def _socket(name: str, family: int, kind: int, protocol: int = 0) -> None:
    @attack("S404", "EPERM", name=f"socket_{name}", levels=_ONLY)
    def tried(_: Arena) -> Pair:
        return syscall("socket", family, kind, protocol), _reach_the_relay()


for _family in _INTERNET:
    _socket(f"udp_{_family}", _family, _DATAGRAM)
    _socket(f"udp_named_{_family}", _family, _DATAGRAM, _UDP)
    _socket(f"raw_{_family}", _family, _RAW, _ICMP)
    _socket(f"ping_{_family}", _family, _DATAGRAM, _ICMP)
    _socket(f"mptcp_{_family}", _family, _STREAM, _MPTCP)
    _socket(f"sctp_{_family}", _family, _STREAM, _SCTP)
    _socket(f"seqpacket_{_family}", _family, 5, _SCTP)
    _socket(f"udp_with_a_high_bit_{_family}", _family, _DATAGRAM | 1 << 40)
for _family in range(_LAST_FAMILY + 1):
    if _family not in _INTERNET:
        _socket(f"of_family_{_family}", _family, _STREAM)


def _serve(name: str, call: str, *arguments: object) -> None:
    @attack("S404", "EPERM", name=f"{name}_of_a_tcp_socket", levels=_ONLY)
    def tried(_: Arena) -> Pair:
        """Nobody inside needs to listen; and a port that is taken first could pass for the relay's."""
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        return syscall(call, made.fileno(), *arguments), _reach_the_relay()


_ANYWHERE = struct.pack("=HH4s8x", socket.AF_INET, 0, bytes(4))
_serve("bind", "bind", _ANYWHERE, len(_ANYWHERE))
_serve("listen", "listen", 1)
_serve("accept", "accept", 0, 0)
_serve("accept4", "accept4", 0, 0, 0)


@attack("S404", "EAFNOSUPPORT", "EINVAL", levels=_ONLY)
def path_socket_by_a_tcp_socket(arena: Arena) -> Pair:
    address = b"\x01\x00" + f"{arena.outside}/socket".encode() + b"\0"
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    return syscall("connect", made.fileno(), address, len(address)), _reach_the_relay()


@attack("S404", "EPERM", levels=_ONLY)
def interface_by_a_socket_option(_: Arena) -> Pair:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found = outcome(lambda: made.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, 1))
    return found, _reach_the_relay()
