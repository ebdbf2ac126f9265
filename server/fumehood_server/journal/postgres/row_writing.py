"""Writes the rows of one transaction: few as arrays of one statement, many by COPY, and the commit with them."""

from __future__ import annotations

from collections.abc import Sequence

from fumehood_server.journal.entry import CallRow, filed
from fumehood_server.journal.postgres.connection import BoundedConnection
from fumehood_server.journal.postgres.rows import Rows
from fumehood_server.journal.postgres.statements import (
    APPROVAL,
    CALLS,
    CHANGES,
    EVENT_TYPES,
    PAYLOAD_TYPES,
    QUOTA_HOLDS,
    QUOTA_WINDOWS,
    STANDING,
)
from fumehood_server.journal.quota_rows import EXPIRED, MAX_EXPIRED, QuotaRows

_FEW = 64
"""Rows that go as arrays of one statement. More are copied: measured, that takes a third as long for each row, and two
exchanges with the server."""


def append_and_commit(connection: BoundedConnection, rows: Rows) -> None:
    """Append them and commit. Few rows go with the commit, in one exchange with the server."""
    tables = ("events", EVENT_TYPES, rows.events), ("payloads", PAYLOAD_TYPES, rows.payloads)
    for table, types, several in tables:
        if len(several) > _FEW:
            _copy(connection, table, types, several)
    with connection.pipeline():
        for table, types, several in tables:
            if 0 < len(several) <= _FEW:
                _insert(connection, table, types, several)
        if rows.calls:
            connection.execute(CALLS, _columns([_call_columns(each) for each in rows.calls.values()]))
        if rows.changes:
            connection.execute(CHANGES, _columns([(key, *each) for key, each in rows.changes.items()]))
        of_approvals = [(APPROVAL, each) for each in rows.approvals.rows()]
        for statement, row in (*of_approvals, *((STANDING, each) for each in rows.standing.rows())):
            connection.execute(statement, row)
        _write_quotas(connection, rows.quotas, rows.reached_us)
        if rows.documents:
            sql = "INSERT INTO documents SELECT * FROM unnest(%s::bytea[], %s::bytea[]) ON CONFLICT DO NOTHING"
            connection.execute(sql, _columns([*rows.documents.items()]))
        for tile in rows.tiles:
            connection.execute("INSERT INTO tiles VALUES (%s, %s, %b)", (tile.level, tile.index, tile.hashes))
        connection.execute(
            "UPDATE head SET size = %s, reached_us = %s, late_us = %s",
            (rows.tree.size, rows.reached_us, rows.late_us),
        )
        connection.commit()


def _write_quotas(connection: BoundedConnection, quotas: QuotaRows, reached_us: int) -> None:
    windows, holds = quotas.window_rows(), quotas.hold_rows()
    if quotas.released:
        connection.execute("DELETE FROM quota_holds WHERE call_id = ANY(%s)", ([*quotas.released],))
    if windows:
        expired = EXPIRED.replace("?", "%s").encode()
        connection.execute(expired, (reached_us, MAX_EXPIRED + len(windows)))
        connection.execute(QUOTA_WINDOWS, _columns(windows))
    if holds:
        connection.execute(QUOTA_HOLDS, _columns(holds))


def _copy(connection: BoundedConnection, table: str, types: Sequence[str], rows: Sequence[tuple[object, ...]]) -> None:
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN (FORMAT binary)".encode()) as copy:
        copy.set_types(types)
        for row in rows:
            copy.write_row(row)


def _insert(
    connection: BoundedConnection, table: str, types: Sequence[str], rows: Sequence[tuple[object, ...]]
) -> None:
    arrays = ", ".join(f"%b::{each}[]" for each in types)
    connection.execute(f"INSERT INTO {table} SELECT * FROM unnest({arrays})".encode(), _columns(rows))


def _columns(rows: Sequence[tuple[object, ...]]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _call_columns(row: CallRow) -> tuple[object, ...]:
    return (
        row.call_id,
        filed(row.run_id),
        filed(row.session_id),
        filed(row.tool),
        row.arguments_hash,
        row.has_effects,
        row.started_us,
        int(row.state),
        row.start_position,
        row.end_position,
        row.owner,
    )
