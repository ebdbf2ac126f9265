"""TCP addresses that the sidecar itself listens on: no request of a plugin is dialled there."""

from __future__ import annotations

import errno
import socket
from collections import defaultdict
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address

from fumehood_server.egress.addresses import IPAddress

_ANY_PORT = 9
_NONE_LEFT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_LOOPBACK: dict[int, IPAddress] = {4: IPv4Address("127.0.0.1"), 6: IPv6Address("::1")}
_IPV4 = 4


class OwnListeners:
    """The sidecar's listeners, known by host and port. They are added as they are bound."""

    def __init__(self, addresses: Iterable[tuple[str, int]] = ()) -> None:
        """`addresses` as in `add`."""
        self._hosts: defaultdict[int, set[str]] = defaultdict(set)
        for host, port in addresses:
            self.add(host, port)

    def add(self, host: str, port: int) -> None:
        """Add one. `host` is an address or a name of this machine. Port 0 is none yet, and adds nothing."""
        if port:
            self._hosts[port].add(host)

    def add_targets(self, targets: Iterable[str]) -> None:
        """Add those that are written `HOST:PORT` or `[IPV6]:PORT`. A unix socket adds nothing: none is dialled."""
        for target in targets:
            host, _, port = target.rpartition(":")
            if not target.startswith("unix:"):
                self.add(host.strip("[]"), int(port))

    def takes(self, address: IPAddress, port: int) -> bool:
        """Whether a connection to that address and port ends at one of them."""
        return any(leads_to(address, host) for host in self._hosts.get(port, ()))


def leads_to(address: IPAddress, host: str) -> bool:
    """Whether a connection to `address` ends at what listens on `host`, an address or a name of this machine.

    Of a name that is not "localhost" nobody knows here what it was bound to: it counts as all of the machine.
    """
    end = _end_of(address)
    if host == "localhost":
        return end.is_loopback
    try:
        bound = ip_address(host)
    except ValueError:
        return _is_of_this_machine(end)
    # gRPC binds both families where it is told 0.0.0.0 or [::].
    return _is_of_this_machine(end) if bound.is_unspecified else _end_of(bound) == end


def _end_of(address: IPAddress) -> IPAddress:
    """Where the kernel connects to: IPv4 for IPv4-mapped addresses, and loopback for unspecified ones (ip(7))."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    end = address if mapped is None else mapped
    return _LOOPBACK[end.version] if end.is_unspecified else end


def _is_of_this_machine(address: IPAddress) -> bool:
    """Whether an interface has the address: the kernel then goes there from that very address. Nothing is sent."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == _IPV4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
            probe.connect((str(address), _ANY_PORT))
            return ip_address(probe.getsockname()[0]) == address
    except OSError as error:  # no way leads there; but without descriptors nobody knows
        return error.errno in _NONE_LEFT


__all__ = ["OwnListeners", "leads_to"]
