"""Outcome of one server's import: what became of it, and what it may do now against what it could do before."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fumehood_sandbox import Level

from fumehood_server.cli.mcp_import.host_configuration import ServerEntry
from fumehood_server.cli.mcp_import.shown_text import hide, public_urls

if TYPE_CHECKING:
    from fumehood_server.cli.mcp_import.granting import AskedGrants
    from fumehood_server.cli.mcp_import.plan import ServerPlan
    from fumehood_server.plugins import CheckReport


class Status(StrEnum):
    """What became of a server."""

    IMPORTED = "imported"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    UNFINISHED = "unfinished"
    """Unchanged or updated, but it doesn't work: what it is granted has no value."""
    PLANNED = "planned"
    """Would be imported: --dry-run."""
    SKIPPED = "skipped"
    """Disabled in its host's configuration, or not among those that were named."""
    DECLINED = "declined"
    REFUSED = "refused"
    """Can't be imported as it is."""
    FAILED = "failed"
    """Could not be imported this time."""

    @property
    def is_problem(self) -> bool:
        """Whether the command's exit status tells of it."""
        return self in {Status.UNFINISHED, Status.DECLINED, Status.REFUSED, Status.FAILED}


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of one server."""

    server: str
    plugin: str = ""
    status: Status = Status.FAILED
    folder: Path | None = None
    code: str = ""
    reason: str = ""
    todo: str = ""
    installs: str = ""
    before: str = ""
    now: Mapping[str, Any] | None = None
    tools: list[dict[str, Any]] = field(default_factory=list)
    diff: str = ""
    notes: list[str] = field(default_factory=list)
    todo_later: list[str] = field(default_factory=list)
    """What is left to do before all of it works."""

    def refuse(self, code: str, reason: str, todo: str) -> None:
        """It can't be imported as it is."""
        self.status, self.code, self.reason, self.todo = Status.REFUSED, code, reason, todo

    def fail(self, code: str, reason: str, todo: str) -> None:
        """It could not be imported."""
        self.status, self.code, self.reason, self.todo = Status.FAILED, code, reason, todo

    def tell_tools(self, report: CheckReport, level: Level) -> None:
        """Keep its tools, with whether they may be called."""
        self.tools = [
            {
                "name": tool.name,
                "side_effects": str(tool.side_effects),
                "within_grants": not tool.never_called and level.allows(tool.side_effects),
                "needs_approval": not Level.READ.allows(tool.side_effects),
                "unavailable": tool.never_called or None,
            }
            for tool in report.tools
        ]

    def conceal(self, secrets: Collection[str]) -> None:
        """Take these values out of what is said, which others may have written, and userinfo and query out of URLs."""
        self.diff = hide(self.diff, secrets)  # of the plugin's own text, where a URL is what it is
        self.reason, self.todo, self.before, self.installs = (
            public_urls(hide(each, secrets)) for each in (self.reason, self.todo, self.before, self.installs)
        )
        self.notes = [public_urls(hide(each, secrets)) for each in self.notes]
        self.todo_later = [public_urls(hide(each, secrets)) for each in self.todo_later]

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "server": self.server,
            "plugin": self.plugin or None,
            "status": str(self.status),
            "folder": str(self.folder) if self.folder else None,
            "problem": {"code": self.code, "message": self.reason, "todo": self.todo} if self.code else None,
            "installs": self.installs or None,
            "before": self.before or None,
            "now": dict(self.now) if self.now is not None else None,
            "tools": self.tools,
            "diff": self.diff or None,
            "notes": self.notes,
            "todo": self.todo_later,
        }


def before_of(entry: ServerEntry) -> str:
    """What its host let the server do."""
    if entry.sandboxed:
        write = ", ".join(entry.sandbox_write) or "nothing"
        hosts = ", ".join(each.rpartition("@")[2] for each in entry.sandbox_hosts) or "no host"
        return f"what its host's sandbox lets it: read almost everything, write {write}, reach {hosts}"
    if entry.transport:
        return "it runs elsewhere, and sees what it is sent"
    return "everything that you may: all of your files, the network, other programs, your environment"


def now_of(plan: ServerPlan, granted: Mapping[str, object]) -> dict[str, Any]:
    """What the server may do by the configuration."""
    return {**granted, "variables": sorted(plan.environment)}


def planned_now(plan: ServerPlan, grants: AskedGrants) -> dict[str, Any]:
    """What it would get of the narrowest grants. Its tools' levels aren't known before it was started."""
    return {
        "max_side_effects": None,
        "read": [str(each) for each in grants.read],
        "write": [str(each) for each in grants.write],
        "hosts": list(grants.hosts),
        "secrets": [each.name for each in grants.secrets],
        "variables": sorted(plan.environment),
    }
