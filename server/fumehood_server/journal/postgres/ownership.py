"""Which sidecars live: each holds a session-level advisory lock, which the server frees when its connection ends.

It is held on the very connection that writes. So who writes has it, and who is cut off has it no longer: by the time
that another sidecar has it, nothing that the first one sends can be committed before it has taken it anew, and then it
finds its calls settled (`rows`).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

import psycopg

from fumehood_server.journal.postgres.connection import BoundedConnection
from fumehood_server.journal.store import StoreError

_CLASS = 0x46756D66
"""First half of the key, beside that of `schema`."""


_ENDING_MS = 500
"""For the server to end a process of its own that was told to: milliseconds, unless the machine is busy."""


def hold(connection: BoundedConnection, sidecar: str, earlier_pid: int | None) -> None:
    """Say that this sidecar lives, until the connection ends. `earlier_pid`: the server's process of the last one.

    Raises:
        StoreError: its last connection is still open at the server, or its calls are just being settled.
    """
    with connection.transaction():
        if _try(connection, "pg_try_advisory_lock", sidecar):
            return
        if earlier_pid is not None:  # frozen, or its network is gone: what it was sent may be committed yet
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege), connection.transaction():
                sql = (
                    "SELECT pg_terminate_backend(pid, %s) FROM pg_locks WHERE locktype = 'advisory' AND pid = %s "
                    "AND classid::bigint = %s AND objid::bigint = %s"
                )
                connection.execute(sql, (_ENDING_MS, earlier_pid, _CLASS, lock_key(sidecar) % (1 << 32)))
            if _try(connection, "pg_try_advisory_lock", sidecar):
                return
    raise StoreError("the sidecar's earlier connection to PostgreSQL has not ended yet")


@contextlib.contextmanager
def taken_over(connection: BoundedConnection, sidecar: str) -> Iterator[bool]:
    """Whether a sidecar is dead. Within the block it can't come back."""
    with connection.transaction():
        is_dead = _try(connection, "pg_try_advisory_lock", sidecar)
    try:
        yield is_dead
    finally:
        if is_dead and not connection.closed:
            with connection.transaction():
                _try(connection, "pg_advisory_unlock", sidecar)


def is_dead(connection: BoundedConnection, sidecar: str) -> bool:
    """Whether a sidecar is dead. Until the end of the transaction that this is called in, it can't come back."""
    return _try(connection, "pg_try_advisory_xact_lock", sidecar)


def _try(connection: BoundedConnection, function: str, sidecar: str) -> bool:
    row = connection.execute(f"SELECT {function}(%s, %s)".encode(), (_CLASS, lock_key(sidecar))).fetchone()
    return row is not None and bool(row[0])


def lock_key(sidecar: str) -> int:
    """The second half of its lock's key."""
    return int.from_bytes(hashlib.sha256(sidecar.encode()).digest()[:4], "big", signed=True)
