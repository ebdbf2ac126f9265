"""The live screen of `fumehood approvals watch`: what waits, and for the one that is selected what would run."""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fumehood.v1 import approval_service_pb2 as pb

from fumehood_server.cli import output
from fumehood_server.cli.approval_json import approval_json, asker_text
from fumehood_server.cli.json_output import level_name
from fumehood_server.model.text import visible_line

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.text import Text

MAX_LINES = 200
"""Of arguments, on the screen."""
_STYLES = {"+": "green", "-": "red", "@": "cyan"}
KEYS = "↑↓ select   y approve   s approve, and let it stand   n deny   e edit and approve   r reason   q quit"


@dataclass
class Screen:
    """What is shown. `last_of` gives the arguments of a tool's last call, `grants_of` what a plugin is granted."""

    last_of: Callable[[str], str]
    grants_of: Callable[[str], list[str]]
    waiting: dict[str, pb.Approval] = field(default_factory=dict)
    selected: int = 0
    reason: str = ""
    said: str = ""
    """What came of the last key."""
    is_cut: bool = False
    """Whether not all of what would run is on the screen."""
    is_cut_by_us: bool = False
    drawn: pb.Approval | None = None
    """The one whose details are on the screen: what a key is about, whatever has come since."""
    _last: dict[str, str] = field(default_factory=dict)
    _grants: dict[str, list[str]] = field(default_factory=dict)
    """By approval: each is asked for by the grants of its time."""

    def take(self, approval: pb.Approval) -> None:
        """Show an approval as it is now, or no longer. The selected one stays selected."""
        selected = self.current
        if approval.state == pb.APPROVAL_STATE_PENDING:
            self.waiting[approval.approval_id] = approval
        else:
            self.waiting.pop(approval.approval_id, None)
        if selected is not None and selected.approval_id in self.waiting:
            self.selected = [*self.waiting].index(selected.approval_id)
        self.move(0)

    def move(self, by: int) -> None:
        """Select another."""
        self.selected = max(0, min(self.selected + by, len(self.waiting) - 1))

    @property
    def current(self) -> pb.Approval | None:
        """The one that is selected."""
        return [*self.waiting.values()][self.selected] if self.waiting else None

    def render(self, console: Console) -> Group:
        """The screen, of which a terminal shows what it has room for."""
        from rich.console import Group

        self.drawn = self.current
        made = Group(*self._lines())
        rows = len(console.render_lines(made, pad=False))
        self.is_cut = self.is_cut_by_us or rows > console.size.height
        return made

    def _lines(self) -> Iterator[Text]:
        number = len(self.waiting)
        yield output.styled(f"{output.plural(number, 'call')} waiting for an approval", "bold")
        for place, each in enumerate(self.waiting.values()):
            left = output.seconds(max(each.expires_at.ToMicroseconds() / 1e6 - time.time(), 0.0))
            void = "void  " if each.void_reason else ""
            row = f"{void}{each.tool}  {level_name(each.side_effects)}  {_asker(each)}  {left} left  {each.approval_id}"
            yield output.styled(f"{'▶' if place == self.selected else ' '} {output.one_line(row)}")
        current = self.current
        if current is not None:
            yield output.styled("")
            yield from self._details(current)
        yield output.styled("")
        if self.said:
            yield output.styled(output.one_line(self.said), "yellow")
        if self.reason:
            yield output.styled(f"reason: {output.one_line(self.reason)}")
        yield output.styled(KEYS, "dim")

    def _details(self, approval: pb.Approval) -> Iterator[Text]:
        shape = approval_json(approval)
        style = output.LEVEL_STYLES.get(shape["side_effects"], "")
        # A newline in any of these would write a line of this screen in somebody else's name.
        yield _line(f"{approval.tool} of {approval.plugin}, level {shape['side_effects']}", style)
        yield _line(f"asked by {_asker(approval)}, call {approval.call_id}, run {approval.context.request_id}")
        if approval.void_reason:
            yield _line(f"void: {approval.void_reason}; its call asks for another one when it is sent again", "red")
        for each in shape["requirements"]:
            who = f" of {', '.join(each['approvers'])}" if each["approvers"] else ""
            stands = ", may stand" if each["standing"] else ""
            yield _line(f"rule {each['rule']}: {output.plural(each['approvals'], 'approval')}{who}{stands}")
        for each in shape["decisions"]:
            yield _line(f"{each['choice']} by {asker_text(each['by'])} {each['reason']}".rstrip())
        if approval.approval_id not in self._last:
            self._last[approval.approval_id] = self.last_of(approval.tool)
            self._grants[approval.approval_id] = self.grants_of(approval.plugin)
        for grant in self._grants[approval.approval_id]:
            yield _line(f"granted: {grant}", "dim")
        lines = [*diffed(self._last[approval.approval_id], approval.arguments_json)]
        self.is_cut_by_us = len(lines) > MAX_LINES + 1
        yield from lines


def diffed(last: str, now: str) -> Iterator[Text]:
    """The arguments, line by line against those of the tool's last call where there was one."""
    # Not splitlines: it also splits at what JSON leaves in a text as it is, such as U+2028.
    before, after = pretty(last).split("\n") if last else [], pretty(now).split("\n")
    if before == after:
        yield output.styled("arguments, the same as in the last call of the tool:", "dim")
        lines = [f" {each}" for each in after]
    elif before:
        yield output.styled("arguments, against the last call of the tool:", "dim")
        lines = [*difflib.unified_diff(before, after, n=len(after), lineterm="")][3:]
    else:
        yield output.styled("arguments:", "dim")
        lines = [f" {each}" for each in after]
    for line in lines[:MAX_LINES]:
        yield output.styled(visible_line(line), _STYLES.get(line[:1], ""))
    if len(lines) > MAX_LINES:
        yield output.styled(f"… and {len(lines) - MAX_LINES:,} more lines: fumehood approvals list --json", "yellow")


def whole(approval: pb.Approval) -> str:
    """All arguments of an approval, for a pager."""
    return "".join(f"{visible_line(each)}\n" for each in pretty(approval.arguments_json).split("\n"))


def _line(text: str, style: str = "") -> Text:
    return output.styled(visible_line(text), style)


def pretty(text: str) -> str:
    """JSON with a line for each value."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _asker(approval: pb.Approval) -> str:
    return output.one_line(approval.caller.name or f"{approval.caller.connection} (no name)")
