"""Progress of a streamed call: a bar or a spinner on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from types import TracebackType

    from fumehood.v1 import tool_pb2


class Watcher(Protocol):
    """Shows updates. A context manager, so that the bar is erased however the call ends."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""

    def show_update(self, update: tool_pb2.ToolUpdate) -> None:
        """Show one update."""


def make_watcher(tool: str) -> Watcher:
    """A `LiveWatcher` where stderr is a terminal, else a `PlainWatcher`."""
    return LiveWatcher(tool) if sys.stderr.isatty() else PlainWatcher()


class PlainWatcher:
    """One line on stderr for each update."""

    def __enter__(self) -> Self:
        """Nothing to begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to end."""

    def show_update(self, update: tool_pb2.ToolUpdate) -> None:
        """Print the update."""
        from fumehood_server.cli.output import note, one_line

        share = _share(update)
        note(f"{share + ' ' if share else ''}{one_line(update.message)}".rstrip() or "...")


class LiveWatcher:
    """One line of a terminal: a spinner until an update has a total, then a bar."""

    def __init__(self, tool: str) -> None:
        """`tool` is shown until the first update."""
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        from fumehood_server.cli.output import console, one_line

        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[share]}", markup=False),
            TimeElapsedColumn(),
            console=console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(one_line(tool), total=None, share="")

    def __enter__(self) -> Self:
        """Put the line on the screen."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the line off the screen."""
        self._progress.stop()

    def show_update(self, update: tool_pb2.ToolUpdate) -> None:
        """Redraw the line."""
        from fumehood_server.cli.output import one_line

        fields: dict[str, str] = {"share": _share(update)}
        message = one_line(update.message)
        self._progress.update(
            self._task,
            description=message or None,
            total=update.total if update.HasField("total") else None,
            completed=update.progress if update.HasField("progress") else None,
            **fields,  # type: ignore[arg-type]  # rich keeps what it doesn't know as the task's own fields
        )


def _share(update: tool_pb2.ToolUpdate) -> str:
    from fumehood_server.cli.output import one_line

    if not update.HasField("progress"):
        return ""
    done = f"{update.progress:,.6g}"
    if update.HasField("total"):
        done += f"/{update.total:,.6g}"
    unit = one_line(update.unit)
    return f"[{done} {unit}]" if unit else f"[{done}]"


@contextlib.contextmanager
def counting(noun: str, *, shown: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar of how many are done, for what takes long. None where nobody watches."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from fumehood_server.cli.output import console

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(noun, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
