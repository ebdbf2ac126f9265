"""Terminal output: tables, JSON, and untrusted text with its control characters escaped.

Text of tools and plugins is untrusted: on a terminal its control characters would be executed (ECMA-48), so they are
replaced by visible symbols there; through a pipe bytes stay as they are.
"""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

PIPE_WIDTH = 200
"""Columns of a table that isn't printed on a terminal: enough to keep a row on a line for grep."""

_C1_FIRST, _C1_LAST = 0x80, 0x9F
_DELETE = 0x7F
_SYMBOLS = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
_SYMBOLS[_DELETE] = 0x2421
_SYMBOLS.update(dict.fromkeys(range(_C1_FIRST, _C1_LAST + 1), 0xFFFD))
# Bidirectional overrides reorder what stands around them (UAX 9), so that a name can look like another.
_SYMBOLS.update(dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD))


def visible(text: str) -> str:
    """`text` with control characters, bar newline and tab, replaced by visible symbols."""
    return text.translate(_SYMBOLS)


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
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


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


def to_json(value: object, *, compact: bool = False) -> str:
    """JSON text of `value`, indented unless `compact`."""
    if compact:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return json.dumps(value, ensure_ascii=False, indent=2)


def note(text: str) -> None:
    """One line for the person at the terminal, on stderr, where it is no part of the output."""
    click.echo(visible(text), err=True)


def plural(number: int, noun: str) -> str:
    """`number` with `noun`, in the plural unless it is one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def seconds(value: float) -> str:
    """A duration with its unit, for people."""
    if value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:,.4g} s"


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
