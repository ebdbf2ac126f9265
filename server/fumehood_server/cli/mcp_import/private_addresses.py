"""Addresses of a host that are not public, as `allow_private` names them."""

from __future__ import annotations

import contextlib
import socket
from ipaddress import ip_address


def private_addresses(name: str) -> tuple[str, ...]:
    """The addresses of a host that are not public: `ADDRESS` of one that is an address, else `NAME=ADDRESS` each."""
    with contextlib.suppress(ValueError):
        return (name,) if not ip_address(name).is_global else ()
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    except OSError:
        return ()
    return tuple(f"{name}={each}" for each in sorted(found) if not ip_address(each.partition("%")[0]).is_global)
