"""Closes a TCP connection that gRPC serves, by shutdown(2): gRPC itself offers no way to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from pathlib import Path

from fumehood_server.telemetry import get_logger

_PEER = re.compile(r"ipv[46]:(?:%5B(?P<v6>[^%]+)%5D|\[(?P<bare>[^\]]+)\]|(?P<v4>[0-9.]+)):(?P<port>\d+)")


def disconnect_unread(peer: str) -> None:
    """Close the connection of a peer, as gRPC names it, and log it. On a thread: there may be thousands to look at."""
    get_logger().warning("connection_closed", peer=peer, reason="its answers are unread, and too many")
    asyncio.get_running_loop().run_in_executor(None, shut_down, peer)


def shut_down(peer: str) -> bool:
    """End both directions of this process's TCP connection to `peer`. False: there is none.

    Each socket is looked at through a descriptor of our own, so that one that gRPC closes meanwhile, and whose number
    is used again, is never taken for another.
    """
    wanted = _address(peer)
    if wanted is None:
        return False
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if not each.is_socket():
                continue
            with socket.socket(fileno=os.dup(int(each.name))) as found:
                if found.family in {socket.AF_INET, socket.AF_INET6} and found.getpeername()[:2] in wanted:
                    found.shutdown(socket.SHUT_RDWR)
                    return True
    return False


def _address(peer: str) -> set[tuple[str, int]] | None:
    """Host and port of the peer, an IPv4 one also as gRPC's dual-stack sockets see it."""
    found = _PEER.fullmatch(peer)
    if found is None:
        return None
    port = int(found["port"])
    if found["v4"]:
        return {(found["v4"], port), (f"::ffff:{found['v4']}", port)}
    return {(found["v6"] or found["bare"], port)}
