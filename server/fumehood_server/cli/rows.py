"""Rows under headings, laid out so that no name, id, level or time is cut, however narrow the terminal is.

What is pasted from a table is typed again: half an id is not found. Through a pipe each row is a line, and whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fumehood_server.model.text import visible_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_GAP = 2
_INDENT = 4
"""Of a last column that stands below its row."""
_LEAST = 20
"""Columns below which prose isn't wrapped: a word a line can't be read."""


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    style: str = ""


_Line = list[tuple[str, str]]
"""What stands in each column of one printed line, and its style."""


@dataclass(slots=True, kw_only=True)
class Rows:
    """Cells of untrusted text. Each is one line, whatever it holds: a newline can't begin a row of its own."""

    headings: tuple[str, ...]
    """All empty: facts, the name of each in the first column."""
    prose: frozenset[int]
    """Columns that may be wrapped between words."""
    right: frozenset[int] = frozenset()
    """Columns of numbers."""
    cuts: bool = False
    """On a terminal the last column is cut to one line: it is a summary of what another command shows whole."""
    _cells: list[list[_Cell]] = field(default_factory=list)

    def add_row(self, *cells: str | Text) -> None:
        """Add a row, a cell for each heading."""
        made = [_Cell(each) if isinstance(each, str) else _Cell(each.plain, str(each.style)) for each in cells]
        if len(made) != len(self.headings):
            raise ValueError(f"{len(made)} cells under {len(self.headings)} headings")
        self._cells.append([_Cell(visible_line(each.text).replace("\t", " "), each.style) for each in made])

    @property
    def row_count(self) -> int:
        """How many there are."""
        return len(self._cells)

    def lines(self, width: int | None) -> Iterator[Text]:
        """The lines to print on so many columns; None: each row is a line."""
        rows = self._headed()
        natural = [max(map(_width, column), default=0) for column in zip(*rows, strict=True)]
        if width is None:
            yield from self._table(rows, natural)
            return
        widths = self._fitted(rows, natural, range(len(natural)), width)
        if widths is not None:
            yield from self._table(rows, widths)
            return
        but_last = range(len(natural) - 1)
        widths = self._fitted(rows, natural, but_last, width)
        if widths is None:
            yield from self._blocks(width)
            return
        for row in rows:
            yield from self._table([row[:-1]], widths)
            for line in self._last(row[-1], width - _INDENT):
                yield _joined([(" " * _INDENT, ""), (line, row[-1].style)])

    def _headed(self) -> list[list[_Cell]]:
        headings = [[_Cell(each, "bold") for each in self.headings]] if any(self.headings) else []
        return [*headings, *self._cells]

    def _fitted(
        self, rows: Sequence[Sequence[_Cell]], natural: Sequence[int], columns: range, width: int
    ) -> list[int] | None:
        """Widths of the columns, those of prose narrowed where they have to be. None: they can't stand side by side."""
        fitted = [natural[each] for each in columns]
        if not fitted:
            return None
        too_wide = sum(fitted) + _GAP * (len(fitted) - 1) - width
        for column in reversed(columns):
            if too_wide > 0 and column in self.prose:
                least = min(natural[column], max(_LEAST, self._longest_word(rows, column)))
                taken = min(too_wide, natural[column] - least)
                fitted[column] -= taken
                too_wide -= taken
        return fitted if too_wide <= 0 else None

    def _longest_word(self, rows: Sequence[Sequence[_Cell]], column: int) -> int:
        # A word of a fact may run over the edge: it is copied whole, since the terminal and not we breaks it.
        if not any(self.headings) or (self.cuts and column == len(self.headings) - 1):
            return 0
        return max((_cell_len(word) for row in rows for word in row[column].text.split(" ")), default=0)

    def _last(self, cell: _Cell, width: int) -> list[str]:
        if self.cuts:
            return [_cut(cell.text, width)] if cell.text else []
        return _wrapped(cell.text, width)

    def _table(self, rows: Sequence[Sequence[_Cell]], widths: Sequence[int]) -> Iterator[Text]:
        last = len(self.headings) - 1
        for row in rows:
            folded = [
                [_cut(cell.text, width)] if self.cuts and column == last else _wrapped(cell.text, width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            for number in range(max(map(len, folded))):
                line: _Line = []
                for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
                    text = folded[column][number] if number < len(folded[column]) else ""
                    blanks = " " * max(0, width - _cell_len(text))
                    line += [(blanks, "")] if column in self.right else []
                    line += [(text, cell.style)]
                    line += [(blanks, "")] if column not in self.right else []
                    line += [(" " * _GAP, "")]
                yield _joined(line)

    def _blocks(self, width: int) -> Iterator[Text]:
        """Each row as a block, a line for each column."""
        names = [each.strip() for each in self.headings]
        beside = max(map(_cell_len, names)) + _GAP
        for number, row in enumerate(self._cells):
            if number:
                yield _joined([])
            for name, cell in zip(names, row, strict=True):
                is_last = cell is row[-1]
                lines = self._last(cell, width - beside) if is_last else _wrapped(cell.text, width - beside)
                for place, line in enumerate(lines):
                    label = "" if place else name
                    yield _joined(
                        [(label, "bold"), (" " * (beside - _cell_len(label)), ""), (line.strip(), cell.style)]
                    )


def show(console: Console, rows: Rows) -> None:
    """Print them."""
    for line in rows.lines(console.width if console.file.isatty() else None):
        console.print(line, soft_wrap=True)  # else rich would break or cut the lines again


def _joined(line: _Line) -> Text:
    """The pieces as one line, without blanks at its end."""
    from rich.text import Text

    made = Text()
    for text, style in line:
        made.append(text, style)
    made.rstrip()
    return made


def _wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most so many columns, broken between words alone: a longer word stays whole."""
    if _cell_len(text) <= width:
        return [text]
    lines: list[str] = []
    taken: list[str] = []
    room = width
    for word in text.split(" "):
        needed = _cell_len(word) + bool(taken)
        if taken and needed > room:
            lines.append(" ".join(taken))
            taken, room, needed = [], width, needed - 1
        taken.append(word)
        room -= needed
    return [*lines, " ".join(taken)]


def _cut(text: str, width: int) -> str:
    from rich.cells import set_cell_size

    return text if _cell_len(text) <= width else set_cell_size(text, max(0, width - 1)).rstrip() + "…"


def _width(cell: _Cell) -> int:
    return _cell_len(cell.text)


def _cell_len(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
