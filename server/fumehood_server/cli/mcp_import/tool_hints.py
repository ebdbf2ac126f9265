"""Hints about an imported server's tools: those that what is granted leaves of no use, with the lines to add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fumehood_sandbox import Level

from fumehood_server.cli.mcp_import.outcome import Outcome
from fumehood_server.config.config import PluginConfig
from fumehood_server.model.tool import ToolDefinition
from fumehood_server.plugins.mcp_tools import pattern_advice

_CLOSED_WORLD = "openWorldHint: false"
_MAX_NAMED = 4
_HOSTS = '\n    hosts = ["NAME:PORT"]'


def hint_at_tools(outcome: Outcome, tools: Sequence[ToolDefinition], plugin: PluginConfig | None = None) -> None:
    """Say of tools above what is granted how they are granted, and of those that reach no network that they don't.

    `plugin` is the server's entry as it is. Nothing of those that can't be called at any level.
    """
    tools = [_in_force(each, plugin) for each in tools if not each.never_called]
    now = outcome.now or {}
    level = Level(str(now["max_side_effects"]))
    hosts = "" if now.get("hosts") else _HOSTS
    above = [each for each in tools if not level.allows(each.side_effects)]
    outward = [each for each in tools if each.side_effects is Level.EXTERNAL]
    if above:
        highest = max((each.side_effects for each in above), key=list(Level).index)
        no_hosts = hosts if highest is Level.EXTERNAL else ""
        text = (
            "so that tools above what is granted can be called, with an approval for each call, in its [[plugin]] of "
            f"fumehood.toml{', with the hosts that those of level external are to reach' if no_hosts else ''}:\n"
            f'    max_side_effects = "{highest}"{no_hosts}'
        )
        (outcome.notes if len(above) < len(tools) else outcome.todo_later).append(text)
    if outward and level is Level.EXTERNAL and hosts:
        outcome.notes.append(
            f"{_named(outward)}: without network, since no host is granted. If it needs one, in its [[plugin]] of "
            f"fumehood.toml:{hosts}"
        )
    reading = [each for each in tools if Level.READ.allows(each.side_effects) and _CLOSED_WORLD not in each.claims]
    is_shared = plugin is not None and plugin.one_process and level is Level.EXTERNAL and outward
    if reading and not is_shared:
        lines = ("" if level is Level.EXTERNAL else '\n    max_side_effects = "external"') + hosts
        outcome.notes.append(
            f"{_named(reading)}: of level read, by the server's own word, and so without network. If it needs one, in "
            f"its [[plugin]] of fumehood.toml, with an approval for each call:{lines}"
            f'\n    [plugin.tools.{reading[0].name}]\n    side_effects = "external"{_for_all(reading, outward)}'
        )


def told_of_unavailable(tools: Sequence[ToolDefinition]) -> Iterator[str]:
    """What is to be known of a server's tools: which can't be called and why, and what of schemas isn't checked."""
    for tool in tools:
        if tool.never_called:
            yield f"{tool.name} is unavailable: {tool.never_called}"
        yield from (f"{tool.name}: {each}" for each in pattern_advice(tool))


def _for_all(reading: Sequence[ToolDefinition], outward: Sequence[ToolDefinition]) -> str:
    """The shorter way where there are many: one process, whose level is the highest that is used."""
    if len(reading) == 1:
        return ""
    where = "in place of the last two lines" if outward else "beside the last two lines, above them,"
    return (
        f"\nFor all of them at once, `one_process = true` {where} has one process serve every tool, where each can do "
        "what the highest can, and those of level read still need no approval."
    )


def _in_force(tool: ToolDefinition, plugin: PluginConfig | None) -> ToolDefinition:
    """A tool with the level that the operator gives it."""
    given = plugin.tool_grant(tool.name).side_effects if plugin is not None else None
    return replace(tool, side_effects=given) if given is not None else tool


def _named(tools: Sequence[ToolDefinition]) -> str:
    names = [each.name for each in tools[:_MAX_NAMED]]
    more = len(tools) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
