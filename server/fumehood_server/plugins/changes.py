"""Diff of tool definitions: the pinned ones against those on disk."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fumehood_server.model.tool import ToolDefinition
from fumehood_server.plugins.definitions import definition_json

_SHORT_LINES = 20
"""Enough for a changed level and description; the whole is for `fumehood plugin add`, which asks for no limit."""
_LINE_CHARS = 160
_MOST_COMPARED = 400
"""Lines of both sides, between what they begin and end with. difflib takes quadratic time: some ms for so many."""


@dataclass(frozen=True, slots=True)
class ToolChange:
    """How one tool changed. `old` is None for a new tool, `new` for one that is gone."""

    name: str
    old: ToolDefinition | None
    new: ToolDefinition | None

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that differ; the level first, since it is what the tool may do."""
        if self.old is None or self.new is None:
            return ()
        old, new = definition_json(self.old), definition_json(self.new)
        changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        return tuple(sorted(changed, key=lambda name: name != "side_effects"))

    @property
    def summary(self) -> str:
        """One phrase, without the author's words."""
        if self.old is None and self.new is not None:
            return f"{self.name} is new at level {self.new.side_effects}"
        if self.old is None or self.new is None:
            return f"{self.name} is gone"
        fields = list(self.fields)
        if self.old.side_effects is not self.new.side_effects:
            fields[0] = f"level {self.old.side_effects} -> {self.new.side_effects}"
        return f"{self.name}: {', '.join(fields)}"

    @property
    def _weight(self) -> tuple[bool, str]:
        levels = {each.side_effects for each in (self.old, self.new) if each is not None}
        return (self.old is not None and self.new is not None and len(levels) == 1, self.name)


def tool_changes(old: Sequence[ToolDefinition], new: Sequence[ToolDefinition]) -> tuple[ToolChange, ...]:
    """The tools that differ: those whose level changed, that came or went first, then the others, each by name."""
    before, after = _by_name(old), _by_name(new)
    found = [
        ToolChange(name, before.get(name), after.get(name))
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    ]
    return tuple(sorted(found, key=lambda change: change._weight))  # noqa: SLF001 - its own module


def summarise_changes(found: Sequence[ToolChange]) -> str:
    """All changes in one line."""
    return "; ".join(change.summary for change in found)


def diff_changes(found: Sequence[ToolChange], *, max_lines: int | None = _SHORT_LINES) -> str:
    """The changes as a unified diff of the definitions. Control characters of the author's text are escaped."""
    lines: list[str] = []
    for change in found:
        lines += _unified(
            _pretty(change.old),
            _pretty(change.new),
            f"{change.name} (pinned)" if change.old else "(none)",
            f"{change.name} (now)" if change.new else "(none)",
        )
    lines = [line if len(line) <= _LINE_CHARS else line[: _LINE_CHARS - 1] + "…" for line in lines]
    if max_lines is not None and len(lines) > max_lines:
        lines = [*lines[:max_lines], f"… {len(lines) - max_lines} more lines"]
    return "\n".join(lines)


def _unified(old: list[str], new: list[str], old_name: str, new_name: str) -> list[str]:
    """A unified diff of what lies between the same beginning and end, with a line of each.

    Where that is much, it is one block of old lines and one of new ones: both are of an author's making.
    """
    shorter = min(len(old), len(new))
    same = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    same_end = next((at for at in range(shorter - same) if old[-1 - at] != new[-1 - at]), shorter - same)
    removed, added = old[same : len(old) - same_end], new[same : len(new) - same_end]
    if len(removed) + len(added) <= _MOST_COMPARED:
        first, after = max(same - 1, 0), max(same_end - 1, 0)
        old, new = old[first : len(old) - after], new[first : len(new) - after]
        return list(difflib.unified_diff(old, new, old_name, new_name, n=1, lineterm=""))
    return [
        f"--- {old_name}",
        f"+++ {new_name}",
        f"@@ -{same + 1},{len(removed)} +{same + 1},{len(added)} @@",
        *(f"-{line}" for line in removed),
        *(f"+{line}" for line in added),
    ]


def _by_name(tools: Sequence[ToolDefinition]) -> Mapping[str, ToolDefinition]:
    return {tool.name: tool for tool in tools}


def _pretty(tool: ToolDefinition | None) -> list[str]:
    """One key a line, the level first. Plain ASCII, so that no hidden or bidirectional character misleads a reader."""
    if tool is None:
        return []
    fields = definition_json(tool)
    ordered = {"name": fields.pop("name"), "side_effects": fields.pop("side_effects"), **fields}
    return json.dumps(ordered, indent=2, ensure_ascii=True).splitlines()
