"""The unix sockets that the sidecar listens on: nobody else's, and open to whom the configuration names."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from fumehood_server.config.listen import Listen, SocketAccess
from fumehood_server.errors import FumehoodError

_OWNER_ALONE = SocketAccess()
_CONNECT_TIMEOUT_S = 1.0
"""A listening socket of this machine takes a connection at once, unless its queue is full, which also means alive."""


class ListenFailedError(FumehoodError):
    """An address can't be listened on. The operator must free it or name another."""

    def __init__(self, target: str, problem: str, remedy: str = "") -> None:
        """Keep the address, why, and what to do where that isn't to take another address."""
        super().__init__(f"can't listen on {target}: {problem}")
        self.target = target
        self.problem = problem
        self.remedy = remedy


@contextlib.contextmanager
def claimed(path: Path, access: SocketAccess = _OWNER_ALONE) -> Iterator[None]:
    """Own the socket's path within the block: nobody may replace it, no other sidecar lives there, no socket is left.

    A folder that isn't there is made: the owner's alone, but that the group of `access` may pass through it.

    A lock beside the socket decides between two sidecars that start at once; a socket without a holder of the lock
    that still answers belongs to somebody else and is left alone.

    Raises:
        ListenFailedError: the path is in use, or its folder lets others replace what is in it.
    """
    target = f"unix:{path}"
    folder = path.parent
    try:
        make_socket_folder(folder, access)
        _check_folder(folder, access, target)
        lock = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        problem = f"{exc.filename}: {exc.strerror}" if exc.filename else str(exc)
        remedy = "" if not isinstance(exc, PermissionError) else f"make {folder} a folder of the sidecar's own user"
        raise ListenFailedError(target, problem, remedy) from exc
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


def open_to(path: Path, access: SocketAccess) -> None:
    """Let those connect whom `access` names, to a socket that was made under `private_umask`.

    The group first: while the mode is the owner's alone, nobody of either group may connect.

    Raises:
        ListenFailedError: the sidecar may not give the socket to that group.
    """
    target = f"unix:{path}"
    try:
        if access.group_id is not None:
            os.chown(path, -1, access.group_id, follow_symlinks=False)
        # Nobody else can have put something in its place: `_check_folder` has seen to that.
        path.chmod(access.mode)
    except PermissionError as exc:
        raise ListenFailedError(target, f"user {os.geteuid()} may not give it to group {access.group}", _JOIN) from exc
    except OSError as exc:
        raise ListenFailedError(target, exc.strerror or str(exc)) from exc


_JOIN = "make the sidecar's user a member of that group (usermod -aG GROUP USER), and start it anew"


def bind_problem(listen: Listen) -> tuple[str, str]:
    """Why gRPC could not bind an address, which it doesn't tell, and what to do: by binding it once more."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        try:
            if listen.path is not None:
                return "gRPC can't bind it", ""
            probe.bind((listen.host, listen.port))
        except PermissionError:
            remedy = "choose a port from 1024 on, or allow this one: sysctl net.ipv4.ip_unprivileged_port_start"
            return f"user {os.geteuid()} may not listen on port {listen.port}", remedy
        except OSError as exc:
            return exc.strerror or str(exc), ""
    return "the address is in use or not this machine's", ""


def make_socket_folder(folder: Path, access: SocketAccess) -> None:
    """Make the folder of a socket, through which those may pass who may connect. One that is there stays as it is.

    Raises:
        OSError: it can't be made, or not be given to the group.
    """
    if folder.exists():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if access.group_id is not None:
        os.chown(folder, -1, access.group_id)
    if access.opens_to_group:
        folder.chmod(0o711 if access.mode & stat.S_IWOTH else 0o710)


def _check_folder(folder: Path, access: SocketAccess, target: str) -> None:
    found = folder.stat()
    passing = stat.S_IXOTH if access.mode & stat.S_IWOTH else stat.S_IXGRP | stat.S_IXOTH
    if access.opens_to_group and not found.st_mode & passing:
        group = f"chgrp {access.group} {folder} && " if access.group else ""
        change = "chmod o+x" if passing == stat.S_IXOTH else f"{group}chmod g+x"
        problem = f"those whom its mode {access.mode:04o} lets connect may not pass through {folder}"
        raise ListenFailedError(target, problem, f"choose a folder of its own for it, or {change} {folder}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX:
        raise ListenFailedError(target, f"others may write to {folder}", f"chmod go-w {folder}")


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
