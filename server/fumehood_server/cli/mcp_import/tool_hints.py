"""Hints about an imported server's tools: those that what is granted leaves of no use, with the lines to add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fumehood_sandbox import Level

from fumehood_server.cli.mcp_import.outcome import Outcome
from fumehood_server.model.tool import ToolDefinition
from fumehood_server.plugins.mcp_tools import pattern_advice

_CLOSED_WORLD = "openWorldHint: false"
_MAX_NAMED = 4


def hint_at_tools(outcome: Outcome, tools: Sequence[ToolDefinition]) -> None:
    """Say of tools above what is granted how they are granted, and of reading ones that they reach no network.

    Nothing of those that can't be called at any level.
    """
    tools = [each for each in tools if not each.schema_problem]
    now = outcome.now or {}
    level = Level(str(now["max_side_effects"]))
    above = [each for each in tools if not level.allows(each.side_effects)]
    if above:
        highest = max((each.side_effects for each in above), key=list(Level).index)
        text = (
            "so that tools above what is granted can be called, with an approval for each call, in its [[plugin]] of "
            f'fumehood.toml:\n    max_side_effects = "{highest}"'
        )
        (outcome.notes if len(above) < len(tools) else outcome.todo_later).append(text)
    reading = [each for each in tools if Level.READ.allows(each.side_effects) and _CLOSED_WORLD not in each.claims]
    if reading and not now.get("hosts"):
        outcome.notes.append(
            f"{_named(reading)}: of level read, by the server's own word, and so without network. If it needs one, in "
            "its [[plugin]] of fumehood.toml, with an approval for each call:\n"
            '    max_side_effects = "external"\n    hosts = ["NAME:PORT"]\n'
            f'    [plugin.tools.{reading[0].name}]\n    side_effects = "external"'
        )


def told_of_schemas(tools: Sequence[ToolDefinition]) -> Iterator[str]:
    """What is to be known of the schemas of a server's tools: which can't be called for theirs, what isn't checked."""
    for tool in tools:
        if tool.schema_problem:
            yield f"{tool.name} is unavailable: {tool.schema_problem}"
        yield from (f"{tool.name}: {each}" for each in pattern_advice(tool))


def _named(tools: Sequence[ToolDefinition]) -> str:
    names = [each.name for each in tools[:_MAX_NAMED]]
    more = len(tools) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
