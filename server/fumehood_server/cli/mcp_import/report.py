"""Output of `mcp import` for people: each server with what it may do now and could do before."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fumehood_sandbox import Level

from fumehood_server.cli.mcp_import.outcome import Outcome, Status
from fumehood_server.cli.output import Part, one_line, plural, say
from fumehood_server.model.text import visible

_COLOURS = {
    Status.IMPORTED: "green",
    Status.UPDATED: "green",
    Status.PLANNED: "cyan",
    Status.REFUSED: "red",
    Status.FAILED: "red",
    Status.DECLINED: "yellow",
    Status.UNFINISHED: "yellow",
}


class Report:
    """Prints outcomes as they are known: what several servers share is said of the first alone."""

    def __init__(self) -> None:
        """Nothing is printed yet."""
        self._said: set[str] = set()

    def print(self, outcome: Outcome) -> None:
        """Print what became of one server."""
        name = one_line(outcome.server)
        known = f" as {outcome.plugin}" if outcome.plugin not in {"", name} else ""
        say(Part(name, bold=True), known, ": ", Part(str(outcome.status), fg=_COLOURS.get(outcome.status)))
        _say_wrapped(outcome.reason)
        _say_wrapped(outcome.todo, fg="cyan")
        if outcome.installs and not outcome.status.is_problem:
            _say_wrapped(outcome.installs, "installed: ")
        if outcome.diff and outcome.status in {Status.REFUSED, Status.PLANNED}:
            for line in outcome.diff.splitlines():
                say(Part(f"  {line}", fg={"+": "green", "-": "red", "@": "cyan"}.get(line[:1])))
        if outcome.now is not None:
            if self._is_new(outcome.before):
                _say_wrapped(one_line(outcome.before), "before: ")
            _say_wrapped(one_line(_now(outcome.now)), "now:    ")
        _say_wrapped(_tools(outcome.tools), "tools:  ")
        for each in filter(self._is_new, outcome.notes):
            _say_wrapped(each, "note: ", dim=True)
        for each in outcome.todo_later:
            _say_wrapped(each, "to do: ", fg="yellow")

    def _is_new(self, text: str) -> bool:
        new = text not in self._said
        self._said.add(text)
        return new


def _say_wrapped(text: str, label: str = "", **style: Any) -> None:  # noqa: ANN401 - as Part takes them
    """Print below a server's name, as wide as the terminal. Indented lines are to be copied, and stay whole."""
    if not text:
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for line in f"{label}{text.strip()}".split("\n"):
        if not width or line.startswith("    "):
            say(Part(f"  {line}", **style))
            continue
        indent = "  " + " " * (len(label) if line.startswith(label) else 0)
        wrapped = textwrap.wrap(
            visible(line), width, initial_indent="  ", subsequent_indent=indent, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
        for each in wrapped:
            say(Part(each, **style))


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
        if key == "hosts" and listed:
            parts.append(_reached(listed, now.get("max_side_effects")))
        elif listed:
            parts.append(f"{verb} {', '.join(listed)}")
        elif none:
            parts.append(none)
    return "; ".join(("reads no file of yours", *parts) if not now.get("read") and not now.get("write") else parts)


def _reached(hosts: Sequence[str], level: str | None) -> str:
    """What a server reaches of its hosts. Its sockets need the relay, which level `external` alone has."""
    named = ", ".join(hosts)
    if level is None:  # its tools' levels aren't known yet
        return f"reaches {named}, by tools of level external"
    if level == Level.EXTERNAL:
        return f"reaches {named}"
    return f"no network: tools of level external alone would reach {named}"


def _tools(tools: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter(
        (str(tool["side_effects"]), bool(tool["needs_approval"])) for tool in tools if tool["within_grants"]
    )
    parts = [f"{number} {level}" + ", each call on approval" * approval for (level, approval), number in counts.items()]
    unavailable = [str(tool["name"]) for tool in tools if tool["unavailable"]]
    above = [str(tool["name"]) for tool in tools if not tool["within_grants"] and not tool["unavailable"]]
    for names, what in ((above, "above what is granted"), (unavailable, "unavailable")):
        if names:
            parts.append(f"{plural(len(names), 'tool')} {what}: {one_line(', '.join(names[:12]))}")
    return "; ".join(parts)
