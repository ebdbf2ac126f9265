"""Listen addresses: `unix:PATH`, with the mode and group of its file, and `HOST:PORT`."""

from __future__ import annotations

import grp
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fumehood_server.model.loopback import is_loopback

UNIX_PATH_LIMIT_BYTES = 107
"""`sun_path` holds 108 bytes with its closing NUL (unix(7)); a longer path would fail only at bind(2)."""

MAX_ADDRESSES = 16
"""That one listener has."""

_MAX_PORT = 65535
_TCP = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9.-]+)):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Listen:
    """One address: a unix socket's path, or a host and a port."""

    path: Path | None = None
    """Absolute. None for TCP."""
    host: str = ""
    """An address or a name of this machine. Empty for a unix socket."""
    port: int = 0
    """0 lets the kernel choose."""

    @property
    def is_local(self) -> bool:
        """Whether this machine alone can reach it: a unix socket, or TCP on loopback."""
        return self.path is not None or is_loopback(self.host)

    @property
    def target(self) -> str:
        """The address as gRPC writes it."""
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketAccess:
    """Who but the sidecar's own user may connect to its unix sockets."""

    mode: int = 0o600
    group_id: int | None = None
    """None leaves the sidecar's own group."""
    group: str = ""
    """As it was configured."""

    @property
    def opens_to_group(self) -> bool:
        """Whether a group may connect."""
        return bool(self.mode & stat.S_IWGRP)


def read_group(text: str) -> int:
    """The number of a group that is given by name or number.

    Raises:
        ListenError: there is none of that name.
    """
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        return grp.getgrnam(text).gr_gid
    except (KeyError, ValueError):
        raise ListenError(f'there is no group "{text}"', "create it with groupadd, or give its number") from None


class ListenError(ValueError):
    """An address can't be used. `problem` says why, `hint` what to write instead, `index` which of several it is."""

    def __init__(self, problem: str, hint: str = "", *, index: int = 0) -> None:
        """Keep them."""
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.index = index


def parse_listen(text: str, folder: Path) -> Listen:
    """`unix:PATH`, where a relative path starts at `folder`, or `HOST:PORT` of this machine.

    Raises:
        ListenError: neither, or too long a path.
    """
    if text.startswith("unix:"):
        return _unix(text.removeprefix("unix:"), folder)
    tcp = _TCP.fullmatch(text)
    if tcp is None:
        raise ListenError(f'"{text}" is not an address', 'write "unix:PATH" or "127.0.0.1:PORT"')
    host, port = tcp["v6"] or tcp["host"], int(tcp["port"])
    if port > _MAX_PORT:
        raise ListenError(f"port {port} is out of range", f"0 to {_MAX_PORT}")
    return Listen(host=host, port=port)


def parse_all(texts: Sequence[str], folder: Path) -> tuple[Listen, ...]:
    """All addresses of one listener, each as `parse_listen` reads it.

    Raises:
        ListenError: one can't be used or is there twice, or they are too many.
    """
    if len(texts) > MAX_ADDRESSES:
        raise ListenError(f"{len(texts)} addresses are too many", f"{MAX_ADDRESSES} at most", index=MAX_ADDRESSES)
    found: list[Listen] = []
    for index, text in enumerate(texts):
        try:
            found.append(parse_listen(text, folder))
        except ListenError as exc:
            raise ListenError(exc.problem, exc.hint, index=index) from exc
        if found[-1] in found[:-1] and found[-1] != Listen(host=found[-1].host):
            raise ListenError(f'"{text}" is named twice', "remove one", index=index)
    return tuple(found)


def _unix(name: str, folder: Path) -> Listen:
    if not name or "\0" in name or name.startswith("//"):
        raise ListenError(f'"unix:{name}" names no file', 'write "unix:PATH"')
    path = Path(os.path.normpath(folder / name))
    size = len(os.fsencode(path))
    if size > UNIX_PATH_LIMIT_BYTES:
        raise ListenError(
            f'the socket\'s path "{path}" has {size} bytes, and the kernel takes {UNIX_PATH_LIMIT_BYTES}',
            "name a shorter path",
        )
    return Listen(path=path)
