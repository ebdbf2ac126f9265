"""Which tools a table of the configuration speaks of: rules, quotas and hooks select them alike."""

from __future__ import annotations

from typing import Protocol

from fumehood_server.model.plugin import RegisteredTool


class Selection(Protocol):
    """By what they are selected. An empty field fits every tool."""

    @property
    def tools(self) -> tuple[str, ...]:
        """Names as callers know them; one that ends in `*` is a beginning."""

    @property
    def plugins(self) -> tuple[str, ...]:
        """Names."""

    @property
    def side_effects(self) -> tuple[str, ...]:
        """Levels."""


def selects(selection: Selection, tool: RegisteredTool) -> bool:
    """Whether every field fits the tool."""
    return (
        (not selection.tools or any(_is_named(tool.name, each) for each in selection.tools))
        and (not selection.plugins or tool.plugin in selection.plugins)
        and (not selection.side_effects or tool.definition.side_effects.value in selection.side_effects)
    )


def _is_named(name: str, wanted: str) -> bool:
    return name.startswith(wanted[:-1]) if wanted.endswith("*") else name == wanted
