"""Output of `mcp import` for people: each server with what it may do now and could do before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fumehood_server.cli.mcp_import.outcome import Outcome, Status
from fumehood_server.cli.output import Part, one_line, plural, say

_COLOURS = {
    Status.IMPORTED: "green",
    Status.UPDATED: "green",
    Status.PLANNED: "cyan",
    Status.REFUSED: "red",
    Status.FAILED: "red",
    Status.DECLINED: "yellow",
}


def print_outcome(outcome: Outcome) -> None:
    """Print what became of one server."""
    name = one_line(outcome.server)
    known = f" as {outcome.plugin}" if outcome.plugin not in {"", name} else ""
    say(Part(name, bold=True), known, ": ", Part(str(outcome.status), fg=_COLOURS.get(outcome.status)))
    if outcome.reason:
        say(f"  {_indented(outcome.reason)}")
    if outcome.todo:
        say(Part(f"  {_indented(outcome.todo)}", fg="cyan"))
    if outcome.installs and not outcome.status.is_problem:
        say(f"  installed: {outcome.installs}")
    if outcome.diff and outcome.status in {Status.REFUSED, Status.PLANNED}:
        for line in outcome.diff.splitlines():
            say(Part(f"  {line}", fg={"+": "green", "-": "red", "@": "cyan"}.get(line[:1])))
    if outcome.now is not None:
        say(f"  before: {one_line(outcome.before)}")
        say(f"  now:    {one_line(_now(outcome.now))}")
    if outcome.tools:
        say(f"  tools:  {_tools(outcome.tools)}")
    for each in outcome.notes:
        say(Part(f"  note: {_indented(each)}", dim=True))
    for each in outcome.todo_later:
        say(Part(f"  to do: {_indented(each)}", fg="yellow"))


def _now(now: Mapping[str, Any]) -> str:
    parts = []
    for verb, key, none in (
        ("reads", "read", ""),
        ("writes", "write", "writes nothing"),
        ("reaches", "hosts", "no network"),
        ("has the secrets", "secrets", ""),
        ("has the variables", "variables", ""),
    ):
        listed: Sequence[str] = now.get(key) or ()
        if listed:
            parts.append(f"{verb} {', '.join(listed)}")
        elif none:
            parts.append(none)
    return "; ".join(("reads no file of yours", *parts) if not now.get("read") and not now.get("write") else parts)


def _tools(tools: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter(str(tool["side_effects"]) for tool in tools if tool["within_grants"])
    parts = [f"{number} {level}" for level, number in counts.items()]
    approvals = sum(1 for tool in tools if tool["within_grants"] and tool["needs_approval"])
    if approvals:
        parts.append(f"{approvals} of them on approval")
    above = [str(tool["name"]) for tool in tools if not tool["within_grants"]]
    if above:
        parts.append(f"{plural(len(above), 'tool')} above what is granted: {one_line(', '.join(above[:12]))}")
    return ", ".join(parts)


def _indented(text: str) -> str:
    return text.strip().replace("\n", "\n  ")
