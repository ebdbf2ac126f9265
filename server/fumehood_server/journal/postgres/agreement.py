"""Settings that all sidecars on one database must have alike, held as shared advisory locks whose keys are the values.

So each sees by `pg_locks` what the others have that live now, and nothing is left of one that has ended. What one
removes, or takes for a new call, is so for all of them: with other settings it would break what another one promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fumehood_server.journal.postgres.connection import BoundedConnection
from fumehood_server.journal.store import UnequalSettingsError

_WINDOW, _KEEP = "call_id_window_s", "keep_events_d"
_CLASSES: Mapping[str, int] = {_WINDOW: 0x46756D77, _KEEP: 0x46756D6B}
"""First half of the key, beside those of `schema` and `ownership`. The second half is the value in seconds."""
_DAY_S = 86_400
_UNSIGNED = 1 << 32


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """By their keys in `[journal]`."""

    call_id_window_s: int
    keep_events_d: float


def agree(connection: BoundedConnection, settings: SharedSettings) -> None:
    """Show what this sidecar has, until the connection ends.

    Raises:
        UnequalSettingsError: another one that lives has something else.
    """
    mine = {_WINDOW: settings.call_id_window_s, _KEEP: round(settings.keep_events_d * _DAY_S)}
    with connection.transaction():
        # Shown before it looks: of two that start at once, one sees the other at least.
        for name, value_s in mine.items():
            key = value_s if value_s < _UNSIGNED // 2 else value_s - _UNSIGNED
            connection.execute("SELECT pg_advisory_lock_shared(%s, %s)", (_CLASSES[name], key))
        sql = (
            "SELECT DISTINCT classid::bigint, objid::bigint FROM pg_locks WHERE locktype = 'advisory' "
            "AND classid::bigint = ANY(%s) AND objsubid = 2 "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY 1, 2"
        )
        found = connection.execute(sql, ([*_CLASSES.values()],)).fetchall()
    names = {value: name for name, value in _CLASSES.items()}
    for place, value_s in found:
        name = names[place]
        if value_s != mine[name]:
            with connection.transaction():  # before the server notices that the connection is closed
                connection.execute("SELECT pg_advisory_unlock_all()")
            raise UnequalSettingsError(name, _shown(name, mine[name]), _shown(name, value_s))


def _shown(name: str, value_s: int) -> str:
    return f"{value_s / _DAY_S:g}" if name == _KEEP else str(value_s)
