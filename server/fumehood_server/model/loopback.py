"""Loopback addresses (RFC 1122, RFC 4291): those that other machines can't reach."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host, given by address or name. Of names that is "localhost" alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
