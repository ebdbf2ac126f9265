"""Reads what a group of entries has to do with, under the lock of the log's head, which whoever changes it holds."""

from __future__ import annotations

from collections.abc import Sequence

from fumehood_server.journal.approval_rows import ApprovalRows, ids_of
from fumehood_server.journal.encoding import decode
from fumehood_server.journal.entry import CallClaim, Entry
from fumehood_server.journal.postgres.connection import BoundedConnection
from fumehood_server.journal.postgres.ownership import is_dead
from fumehood_server.journal.postgres.run_owners import END_TYPE, NEWEST, NO_OWNER, RunOwners
from fumehood_server.journal.postgres.statements import EVENTS_OF_OPEN
from fumehood_server.journal.quota_rows import OPEN_HOLDS, QuotaRows, counters_of
from fumehood_server.journal.standing_rows import StandingRows, standing_ids_of
from fumehood_server.model.approvals import Approval
from fumehood_server.model.quota_counts import Window
from fumehood_server.model.standing import Standing


def approvals_of(connection: BoundedConnection, entries: Sequence[Entry]) -> ApprovalRows:
    """The approvals that these change, as they are."""
    approval_ids = ids_of(entries)
    if not approval_ids:
        return ApprovalRows()
    sql = "SELECT approval_id, record FROM approvals WHERE approval_id = ANY(%s)"
    found = connection.execute(sql, (approval_ids,), binary=True).fetchall()
    return ApprovalRows({approval_id: Approval.from_json(bytes(record)) for approval_id, record in found})


def standing_of(connection: BoundedConnection, entries: Sequence[Entry]) -> StandingRows:
    """The standing approvals, likewise."""
    standing_ids = standing_ids_of(entries)
    if not standing_ids:
        return StandingRows()
    sql = "SELECT standing_id, record FROM standing_approvals WHERE standing_id = ANY(%s)"
    found = connection.execute(sql, (standing_ids,), binary=True).fetchall()
    return StandingRows({standing_id: Standing.from_json(bytes(record)) for standing_id, record in found})


def events_left(connection: BoundedConnection, entries: Sequence[Entry]) -> dict[str, int]:
    """How many events those calls have which dead sidecars left, of the ones that are claimed.

    Until the transaction ends, none of those sidecars can come back.
    """
    claims = [each.call for each in entries if type(each.call) is CallClaim]
    return {
        each.call_id: connection.execute(EVENTS_OF_OPEN.encode(), (each.call_id, each.call_id)).fetchall()[0][0]
        for each in claims
        if is_dead(connection, each.owner)
    }


def runs_of(connection: BoundedConnection, entries: Sequence[Entry], sidecar: str) -> RunOwners:
    """Whose the runs are that these claim, and which of the claims' owners are dead, other than `sidecar`."""
    claims = [each.run for each in entries if each.run is not None]
    found = {}
    for run_id in {each.run_id for each in claims}:
        for kind, body in connection.execute(NEWEST.encode(), (run_id,)).fetchall():
            found[run_id] = NO_OWNER if kind == END_TYPE else decode(bytes(body))["sidecar"]
    left = {each.owner for each in claims if each.owner and each.owner != sidecar}
    return RunOwners(found, [each for each in left if is_dead(connection, each)])


def quotas_of(connection: BoundedConnection, entries: Sequence[Entry]) -> QuotaRows:
    """What is taken of the quotas that count these."""
    windows, holds = counters_of(entries)
    found = QuotaRows()
    if windows:
        sql = "SELECT counter, record FROM quota_windows WHERE counter = ANY(%s)"
        rows = connection.execute(sql, (windows,), binary=True).fetchall()
        found.windows = {counter: Window.from_json(bytes(record)) for counter, record in rows}
    if holds:
        sql = f"SELECT counter, calls.call_id {OPEN_HOLDS} AND counter = ANY(%s)"
        for counter, call_id in connection.execute(sql.encode(), (holds,)).fetchall():
            found.holds.setdefault(counter, set()).add(call_id)
    return found
