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
    return unwritable(tool.name, problem)


def unwritable(tool: str, problem: str) -> CallError:
    """Nothing was sent, since it could not be recorded before."""
    return CallError(
        code=Code.CONFIG_JOURNAL_UNAVAILABLE,
        message=f"{tool[:64]} was not run: the journal can't be written: {problem}",
        retryable=True,
        details={"reason": "journal_unavailable"},
    )
