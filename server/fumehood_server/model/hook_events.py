"""What the journal records of hooks and middleware: one event for each that was asked about a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fumehood_server.model.events import Digested, Event


@dataclass(slots=True, kw_only=True)
class HookDecided(Event):
    """One was asked before a call or after it, and this came of it. After the call's start, before its end."""

    TYPE: ClassVar[str] = "hook_decided"
    hook: str
    kind: str
    """`hook` or `middleware`."""
    stage: str
    """`before` or `after`."""
    choice: str
    """`allow`, `deny`, `change`, `gone`: there was no answer; or `refused`: what it changed could not be used."""
    reason: str
    """Its own word, or why there is no answer."""
    proceeds: bool
    """Whether the call went on, or its caller got a result."""
    by: str = ""
    """Name of the caller who serves the hook. Empty: it has none, or nobody was asked."""
    authenticated_by: str = ""
    connection: str = ""
    arguments_hash: str = ""
    """Before the call: of those that it was asked about. Empty: nothing is kept of them."""
    left_hash: str = ""
    """Of what it put in the place of arguments or result. Empty: nothing, or nothing is kept."""
    seen: Digested | None = None
    """What it was asked about, where it was not let through as it is: arguments, or a result as in `execute_end`."""
    at_us: int = 0
    """POSIX time of the answer."""
    wall_us: int = 0
    """How long it took."""
