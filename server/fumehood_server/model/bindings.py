"""What an approval is bound to, held against what there is now: tool, plugin, grants and rules."""

from __future__ import annotations

from typing import Protocol

from fumehood_server.model.approvals import Subject
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.policy import Policy


class KnownTools(Protocol):
    """The tools of this sidecar."""

    def find(self, name: str, /) -> RegisteredTool | None:
        """The tool, or None when there is none of that name."""


class Bindings:
    """What has changed since an approval was asked for, by the tools and rules of this sidecar."""

    __slots__ = ("_policy", "_tools")

    def __init__(self, tools: KnownTools, policy: Policy) -> None:
        """By those in force when each is asked."""
        self._tools = tools
        self._policy = policy

    def change_since(self, subject: Subject) -> str:
        """The first of what has changed, but for arguments and caller, in words. Empty: nothing has."""
        change = change_of_tool(subject, self._tools.find(subject.tool))
        if not change and subject.policy != self._policy.version:
            return "the rules have changed since it was asked for"
        return change


def change_of_tool(subject: Subject, tool: RegisteredTool | None) -> str:
    """The first of what has changed of the tool, which is `tool` now, in words. Empty: nothing has."""
    name = subject.tool
    if tool is None or tool.spec is None:
        return f"{name} can't be called as things are now"
    changes = (
        (subject.permission != str(tool.permission), f"the permission of {name} has changed"),
        (subject.definition != tool.definition_digest, f"the definition of {name} has changed"),
        (subject.plugin != tool.spec.plugin_digest, f"the plugin of {name} has changed"),
        (subject.sandbox != tool.spec.reach, f"what {name} may touch has changed"),
    )
    return next((words for is_so, words in changes if is_so), "")


__all__ = ["Bindings", "KnownTools", "change_of_tool"]
