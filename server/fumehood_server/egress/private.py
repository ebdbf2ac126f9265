"""Private addresses that an operator allows, each for one host of a request: a name, or the address itself."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from fumehood_server.egress.errors import EgressRefusedError
from fumehood_server.egress.hostname import Host, canonical_host
from fumehood_server.egress.hosts import HostEntryError


@dataclass(frozen=True, slots=True)
class PrivateAddress:
    """One entry of `allow_private`. `str()` gives its canonical form."""

    address: IPv4Address | IPv6Address
    name: str = ""
    """The name that may stand for it. Empty: none may, the request is for the address as such."""

    def __str__(self) -> str:
        return f"{self.name}={self.address}" if self.name else str(self.address)


def parse_private(text: str) -> PrivateAddress:
    """Read an entry of `allow_private`: `ADDRESS`, or `NAME=ADDRESS`.

    Raises:
        HostEntryError: the text is neither.
    """
    name, equals, written = text.rpartition("=")
    try:
        address = ip_address(written)
    except ValueError:
        raise HostEntryError(text, "is not one IP address") from None
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        raise HostEntryError(text, "names an interface of this machine")
    if not equals:
        return PrivateAddress(address)
    try:
        host = canonical_host(name)
    except EgressRefusedError as error:
        raise HostEntryError(text, error.message) from error
    if host.address is not None:
        raise HostEntryError(text, "has an address before =, where a name stands")
    return PrivateAddress(address, host.name)


def private_address(host: Host, address: IPv4Address | IPv6Address) -> PrivateAddress:
    """The entry that would allow `address` for a request to `host`."""
    return PrivateAddress(address, "" if host.address is not None else host.name)


__all__ = ["PrivateAddress", "parse_private", "private_address"]
