"""Which of the sidecar's tools an MCP server offers: patterns of names, and a highest side-effect level."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass

from fumehood.v1 import tool_pb2

LEVELS = {
    "none": tool_pb2.SIDE_EFFECTS_NONE,
    "read": tool_pb2.SIDE_EFFECTS_READ,
    "write": tool_pb2.SIDE_EFFECTS_WRITE,
    "external": tool_pb2.SIDE_EFFECTS_EXTERNAL,
}


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """What is offered. It narrows what the sidecar's own rules let a caller do, and widens nothing."""

    names: re.Pattern[str] | None = None
    """None: every name."""
    max_level: tool_pb2.SideEffects.ValueType = tool_pb2.SIDE_EFFECTS_UNSPECIFIED
    """Unspecified: every level."""

    @classmethod
    def of(cls, patterns: Iterable[str], max_level: str | None) -> ToolChoice:
        """From patterns with `*` for any characters, and a level's word.

        Raises:
            KeyError: there is no such level.
        """
        alternatives = [fnmatch.translate(each) for each in dict.fromkeys(patterns)]
        return cls(
            re.compile("|".join(alternatives)) if alternatives else None,
            LEVELS[max_level] if max_level else tool_pb2.SIDE_EFFECTS_UNSPECIFIED,
        )

    def takes(self, name: str) -> bool:
        """Whether a name is offered, whatever its level."""
        return self.names is None or self.names.fullmatch(name) is not None
