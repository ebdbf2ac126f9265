"""Terminal output: tables, JSON, and untrusted text with its control characters escaped.

The command line's one way to the terminal: nothing else in this folder writes. What is written through a pipe may reach
a terminal all the same, so it is escaped there too, bar the content of a result: that may be data.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from fumehood_server.model.text import escape_json, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

PIPE_WIDTH = 200
"""Columns of a table that isn't printed on a terminal: enough to keep a row on a line for grep."""


def one_line(text: str) -> str:
    """`text` as one line without control characters."""
    return visible(" ".join(text.split()))


def summary(text: str) -> str:
    """The first sentence of a description, on one line."""
    first = one_line(text.strip().split("\n\n", 1)[0])
    sentence, stop, _ = first.partition(". ")
    return sentence + stop.strip()


def console(*, stderr: bool = False) -> Console:
    """A console that interprets no markup in untrusted text, as wide as the terminal or `PIPE_WIDTH`."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream,
        width=None if stream.isatty() else PIPE_WIDTH,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=False,
    )


def table(*headings: str, indent: int = 0) -> Table:
    """An empty table in this command line's style: bold headings, no lines."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0), show_edge=False)
    if indent:
        made.add_column("", width=indent - 2, no_wrap=True)
    for heading in headings:
        made.add_column(heading, overflow="fold")
    return made


_GAP = 2
_LEAST = 20


def show_rows(console: Console, made: Table) -> None:
    """Print a table that cuts only its last column on a narrow terminal: half a name can't be typed."""
    from rich.cells import cell_len

    used = 0
    for column in made.columns[:-1]:
        column.no_wrap = True
        column.width = max(cell_len(str(cell)) for cell in (column.header, *column.cells))
        used += column.width + _GAP
    made.columns[-1].max_width = max(console.width - used, _LEAST)
    show(console, made)


def show(console: Console, renderable: Table) -> None:
    """Print a table, without trailing blanks through a pipe."""
    if console.is_terminal:
        console.print(renderable)
        return
    with console.capture() as capture:
        console.print(renderable)
    click.echo("\n".join(line.rstrip() for line in capture.get().split("\n")[:-1]))


def styled(text: str, style: str = "") -> Text:
    """Untrusted text in a style."""
    from rich.text import Text

    return Text(visible(text), style=style)


LEVEL_STYLES = {"none": "green", "read": "cyan", "write": "yellow", "external": "red"}
"""A colour for each side-effect level."""

PERMISSION_STYLES = {"allow": "green", "require_approval": "yellow", "deny": "red"}


def print_json(value: object, *, compact: bool = False) -> None:
    """Print one JSON document on stdout; `compact` keeps it on one line."""
    click.echo(to_json(value, compact=compact))


def print_json_error(value: object) -> None:
    """Print one JSON document on one line of stderr."""
    click.echo(to_json(value, compact=True), err=True)


def to_json(value: object, *, compact: bool = False) -> str:
    """JSON text of `value`, indented unless `compact`, with control characters escaped."""
    if compact:
        return escape_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    return escape_json(json.dumps(value, ensure_ascii=False, indent=2))


def say(*parts: str | Part, err: bool = False) -> None:
    """Print text, each part in its own style, with control characters escaped."""
    shown = (Part(each) if isinstance(each, str) else each for each in parts)
    click.echo("".join(each.styled_text() for each in shown), err=err)


@dataclass(frozen=True, slots=True)
class Part:
    """Untrusted text in a style of click's, for `say`."""

    text: str
    fg: str | None = None
    bold: bool | None = None
    dim: bool | None = None

    def styled_text(self) -> str:
        """The text, escaped, within the style's own escape sequences."""
        return click.style(visible(self.text), fg=self.fg, bold=self.bold, dim=self.dim)


def note(text: str) -> None:
    """One line for the person at the terminal, on stderr, where it is no part of the output."""
    say(text, err=True)


def write_content(text: str) -> None:
    """Print a result's text: escaped on a terminal, and as it is elsewhere, since it may be a file's."""
    # Without color=True click would take escape sequences out of what goes through a pipe.
    click.echo(visible(text) if sys.stdout.isatty() else text, color=True)


def write_piece(text: str) -> None:
    """Print a piece of a text on a terminal, escaped, without a newline after it."""
    click.echo(visible(text), nl=False, color=True)


def confirm(question: str) -> bool:
    """Ask. Enter means no."""
    return click.confirm(visible(question), default=False)


def plural(number: int, noun: str) -> str:
    """`number` with `noun`, in the plural unless it is one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def seconds(value: float) -> str:
    """A duration with its unit, for people."""
    if value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:,.4g} s"


def utc(time_us: int) -> str:
    """A POSIX time in microseconds as date and time, in UTC."""
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def json_or_text(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """The JSON value that `text` holds; the text itself when it holds none; None when it is empty."""
    if not text:
        return None
    try:
        return json.loads(text, parse_float=_float_or_text)
    except ValueError:
        return text


def _float_or_text(text: str) -> float | str:
    """The number, or its text where a float overflows, since JSON has no infinity."""
    value = float(text)
    return value if math.isfinite(value) else text
