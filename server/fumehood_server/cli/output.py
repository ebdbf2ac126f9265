"""Terminal output: tables, JSON, and untrusted text with its control characters escaped.

The command line's one way to the terminal: nothing else in this folder writes. What is written through a pipe may reach
a terminal all the same, so it is escaped there too, bar the content of a result: that may be data.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from fumehood_server.model.text import escape_json, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from fumehood_server.cli.rows import Rows

PIPE_WIDTH = 200
"""Columns of prose that isn't printed on a terminal. A table's rows are lines there, however long."""


def one_line(text: str) -> str:
    """`text` as one line without control characters."""
    return visible(" ".join(text.split()))


def hanging(text: str) -> str:
    """Text of several lines, each but the first indented, so that none that others have written reads as ours."""
    return text.replace("\n", "\n    ")


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
        soft_wrap=not stream.isatty(),
    )


def table(*headings: str, prose: Sequence[int] = (-1,), right: Sequence[int] = (), cuts: bool = False) -> Rows:
    """An empty table: see `Rows`. Without `prose` its last column alone may be wrapped."""
    from fumehood_server.cli.rows import Rows

    places = frozenset(each % len(headings) for each in prose)
    return Rows(headings=headings, prose=places, right=frozenset(right), cuts=cuts)


def show_rows(console: Console, made: Rows) -> None:
    """Print a table. No name or id is cut, and through a pipe nothing is."""
    from fumehood_server.cli.rows import show

    show(console, made)


def print_indented(console: Console, text: str) -> None:
    """Print what others have written, every line of it indented, those too that a narrow terminal makes of one."""
    from rich.padding import Padding

    for line in text.splitlines():
        if console.file.isatty():
            console.print(Padding(styled(line), (0, 0, 0, 2)))
        else:
            console.print(styled(f"  {line}"), soft_wrap=True)


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
