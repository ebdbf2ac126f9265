"""What the store asks PostgreSQL to write, and to look up under the lock of the log's head."""

from __future__ import annotations

from fumehood_server.journal.sql.columns import NOT_ENDS

EVENT_TYPES = ("int8", "int8", "int8", "text", "text", "text", "text", "bytea")
PAYLOAD_TYPES = ("int8", "int4", "bytea")
KNOWN = "SELECT call_id, owner, state, started_us, end_position FROM calls WHERE call_id = ANY(%s)"
CALLS = """
    INSERT INTO calls SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::bytea[], %s::boolean[],
        %s::bigint[], %s::smallint[], %s::bigint[], %s::bigint[], %s::text[])
    ON CONFLICT (call_id) DO UPDATE SET run_id = excluded.run_id, session_id = excluded.session_id,
        tool = excluded.tool, arguments_hash = excluded.arguments_hash, has_effects = excluded.has_effects,
        started_us = excluded.started_us, state = excluded.state, start_position = excluded.start_position,
        end_position = excluded.end_position, owner = excluded.owner
    """
APPROVAL = """
    INSERT INTO approvals VALUES (%s, %s, %s, %s, %b)
    ON CONFLICT (approval_id) DO UPDATE SET is_open = excluded.is_open, position = excluded.position,
        record = excluded.record
    """
STANDING = """
    INSERT INTO standing_approvals VALUES (%s, %s, %s, %s, %s, %b)
    ON CONFLICT (standing_id) DO UPDATE SET is_open = excluded.is_open, position = excluded.position,
        record = excluded.record
    """
QUOTA_WINDOWS = """
    INSERT INTO quota_windows SELECT * FROM unnest(%s::text[], %s::bigint[], %b::bytea[])
    ON CONFLICT (counter) DO UPDATE SET expires_us = excluded.expires_us, record = excluded.record
    """
QUOTA_HOLDS = """
    INSERT INTO quota_holds SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[], %b::bytea[])
    ON CONFLICT (counter, call_id) DO UPDATE SET start_position = excluded.start_position, label = excluded.label
    """
CHANGES = """
    UPDATE calls SET state = changes.state, end_position = changes.end_position, owner = changes.owner
    FROM unnest(%s::text[], %s::smallint[], %s::bigint[], %s::text[]) AS changes (call_id, state, end_position, owner)
    WHERE calls.call_id = changes.call_id
    """
EVENTS_OF_OPEN = f"""
    SELECT 1 + count(*) FROM events WHERE subject = %s AND subject <> '' AND {NOT_ENDS}
        AND position > (SELECT start_position FROM calls WHERE call_id = %s)
    """
