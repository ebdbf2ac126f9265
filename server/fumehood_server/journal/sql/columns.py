"""What is selected, and the sets of types that the indexes of both databases leave out."""

from __future__ import annotations

NOT_ENDS = "type <> 'execute_start' AND type <> 'execute_end' AND type <> 'execute_cancelled'"
"""Of the others the list of calls knows nothing, so an index has them. Not by `NOT IN`, for which SQLite makes a list
anew for each row that is written: half of what a row costs."""

NOT_OF_CALLS = f"{NOT_ENDS} AND type <> 'execute_attempt'"
"""Events that few calls have: an index finds them by type."""

OF_APPROVALS = (
    "type IN ('approval_requested', 'approval_decided', 'approval_withdrawn', 'approval_expired', "
    "'standing_approval_granted', 'standing_approval_revoked')"
)
"""Events about a call that may be from before its start."""

SELECT = "SELECT position, time_us, type, subject, tool, plugin, body FROM events"
