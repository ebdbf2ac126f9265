"""Messages of a conversation, between the caller, models and tools, and their JSON in the journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Role(StrEnum):
    """Who says a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """A model's wish to call a tool."""

    id: str
    """The model's own."""
    tool: str
    arguments_json: str
    """As the model wrote them, which need not be JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message."""

    role: Role
    text: str = ""
    tool_uses: tuple[ToolUse, ...] = ()
    """Of `ASSISTANT` alone."""
    tool_use_id: str = ""
    """Of `TOOL` alone: which use it answers."""
    tool: str = ""
    """Of `TOOL` alone: the tool's name."""
    is_error: bool = False
    """Of `TOOL` alone: whether the call failed."""

    @property
    def size(self) -> int:
        """About how many bytes it has, for bounds."""
        return len(self.text) + sum(len(each.arguments_json) + len(each.tool) for each in self.tool_uses)


def messages_to_json(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """As JSON's objects, without what is empty."""
    found = []
    for each in messages:
        fields: dict[str, Any] = {"role": each.role.value}
        if each.text:
            fields["text"] = each.text
        if each.tool_uses:
            fields["tool_uses"] = [
                {"id": use.id, "tool": use.tool, "arguments_json": use.arguments_json} for use in each.tool_uses
            ]
        if each.tool_use_id:
            fields |= {"tool_use_id": each.tool_use_id, "tool": each.tool, "is_error": each.is_error}
        found.append(fields)
    return found


def messages_from_json(objects: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    """What `messages_to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError: it did not write that.
    """
    return tuple(
        Message(
            role=Role(each["role"]),
            text=each.get("text", ""),
            tool_uses=tuple(ToolUse(**use) for use in each.get("tool_uses", ())),
            tool_use_id=each.get("tool_use_id", ""),
            tool=each.get("tool", ""),
            is_error=each.get("is_error", False),
        )
        for each in objects
    )
