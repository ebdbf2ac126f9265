"""Public and special-purpose IP addresses (IANA's registries).

The tables are our own: those of `ipaddress` change with Python's patch releases.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

IPAddress = IPv4Address | IPv6Address

_SPECIAL_V4 = tuple(
    (IPv4Network(network), what)
    for network, what in (
        # IANA IPv4 Special-Purpose Address Registry; what is not globally reachable.
        ("0.0.0.0/8", "of this network, or unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier's NAT"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "of a protocol"),
        ("192.0.2.0/24", "for documentation"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved, or broadcast"),
        # A cloud's own service for its machines, although the address looks public.
        ("168.63.129.16/32", "a cloud's metadata service"),
    )
)

_SPECIAL_V6 = tuple(
    (IPv6Network(network), what)
    for network, what in (
        # Within 2000::/3, all that IANA gives out as global unicast.
        ("2001::/32", "of Teredo"),
        ("2001::/23", "of a protocol"),
        ("2001:db8::/32", "for documentation"),
        ("3fff::/20", "for documentation"),
        # Outside it, named for the message alone.
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("64:ff9b:1::/48", "of a local NAT64"),
        ("100::/64", "discarded"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
_GLOBAL_V6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
"""RFC 6052 section 2.1: the IPv4 address is the last 32 bits. The local prefix 64:ff9b:1::/48 (RFC 8215) has it where
its operator chose, so nothing can be said of those."""
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
"""RFC 5214 section 6.1: interface identifiers 0000:5efe and 0200:5efe carry an IPv4 address."""


def why_not_public(address: IPAddress) -> str:
    """Why the address is not public, as words for a sentence ("loopback"). Empty if it is public.

    An address that embeds an IPv4 one (IPv4-mapped, 6to4, NAT64, ISATAP) is judged by that. Teredo is never public.
    """
    if isinstance(address, IPv4Address):
        return next((what for network, what in _SPECIAL_V4 if address in network), "")
    embedded, how = _embedded_ipv4(address)
    if embedded is not None:
        within = why_not_public(embedded)
        return f"{how} for {embedded}, which is {within}" if within else ""
    what = next((what for network, what in _SPECIAL_V6 if address in network), "")
    if not what and address not in _GLOBAL_V6:
        return "not global unicast"
    return what


def _embedded_ipv4(address: IPv6Address) -> tuple[IPv4Address | None, str]:
    """The IPv4 address that packets to this one end at, and the mechanism."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped, "IPv4-mapped"
    if address.sixtofour is not None:
        return address.sixtofour, "6to4"
    number = int(address)
    if address in _NAT64:
        return IPv4Address(number & 0xFFFFFFFF), "NAT64"
    if address in _GLOBAL_V6 and (number >> 32) & 0xFFFFFFFF in _ISATAP:
        return IPv4Address(number & 0xFFFFFFFF), "ISATAP"
    return None, ""
