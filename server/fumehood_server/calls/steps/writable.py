"""The step that refuses a call which could not be recorded."""

from __future__ import annotations

from fumehood_server.model.call import CallError
from fumehood_server.model.events import Journal
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import safe_to_repeat


def check_writable(journal: Journal, tool: RegisteredTool, *, required: bool) -> CallError | None:
    """Why the call ends here: the journal can't be written, and the tool has effects or the operator wants all told."""
    problem = journal.problem
    if problem is None or (not required and safe_to_repeat(tool.definition.side_effects)):
        return None
    return not_run(tool.name, f"the journal can't be written: {problem}")


def not_run(tool: str, why: str) -> CallError:
    """Nothing was sent to a worker, since the journal can't be used."""
    return CallError(
        code=Code.CONFIG_JOURNAL_UNAVAILABLE,
        message=f"{tool[:64]} was not run: {why}",
        retryable=True,
        details={"reason": "journal_unavailable"},
    )
