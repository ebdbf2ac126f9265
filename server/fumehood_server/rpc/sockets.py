"""The unix sockets that the sidecar listens on: private, and nobody else's."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from fumehood_server.errors import FumehoodError

_CONNECT_TIMEOUT_S = 1.0
"""A listening socket of this machine takes a connection at once, unless its queue is full, which also means alive."""


class ListenFailedError(FumehoodError):
    """An address can't be listened on. The operator must free it or name another."""

    def __init__(self, target: str, problem: str) -> None:
        """Keep the address and why."""
        super().__init__(f"can't listen on {target}: {problem}")
        self.target = target
        self.problem = problem


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Own the socket's path within the block: the folder is private, no other sidecar lives there, no socket is left.

    A lock beside the socket decides between two sidecars that start at once; a socket without a holder of the lock
    that still answers belongs to somebody else and is left alone.

    Raises:
        ListenFailedError: the path is in use, or its folder lets others replace what is in it.
    """
    target = f"unix:{path}"
    folder = path.parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_folder(folder, target)
        lock = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        raise ListenFailedError(target, exc.strerror or str(exc)) from exc
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ListenFailedError(target, "another sidecar is serving there") from None
        _remove_stale(path, target)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        # The lock's file stays: who removed it could remove one that another sidecar has just locked.
        os.close(lock)


@contextlib.contextmanager
def private_umask() -> Iterator[None]:
    """What is created within the block is its owner's alone. A socket made open and closed later has a gap."""
    old = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(old)


def _check_folder(folder: Path, target: str) -> None:
    found = folder.stat()
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX:
        raise ListenFailedError(target, f"others may write to {folder}: chmod go-w {folder}")


def _remove_stale(path: Path, target: str) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ListenFailedError(target, "there is something that is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.settimeout(_CONNECT_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as exc:
            raise ListenFailedError(target, exc.strerror or str(exc)) from exc
    raise ListenFailedError(target, "another process is serving there")
