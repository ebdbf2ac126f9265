"""A run on a terminal: text as it comes, a spinner for each thing that is under way, and what is being typed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from fumehood.v1 import orchestration_service_pb2 as pb

from fumehood_server.cli import output
from fumehood_server.cli.run.run_ending import answer_text, explain
from fumehood_server.cli.run.run_views import answer_line, called, outcome, shortened

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

MAX_ROWS = 12
"""Of what is under way, on the screen."""
MAX_HELD_CHARS = 1024 * 1024
"""Of text that comes while somebody types. What is beyond it is written at once."""
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PER_SECOND = 10


@dataclass(slots=True)
class _Row:
    label: str
    level: str = ""
    detail: str = ""
    chars: int = 0
    """Of an answer that is not shown as it comes."""
    began_at: float = field(default_factory=time.monotonic)

    @property
    def took_s(self) -> float:
        return time.monotonic() - self.began_at


class LiveView:
    """A `RunView`. Text goes to stdout, everything else to stderr, of which one terminal is made."""

    def __init__(self, *, shows_text: bool, level_of: Callable[[str], str]) -> None:
        """`shows_text`: whether text is shown as it comes, else how much there is. `level_of` knows tools' levels."""
        self._console = output.console(stderr=True)
        self._shows_text = shows_text
        self._level_of = level_of
        self._rows: dict[str, _Row] = {}
        self._label = self._typed = ""
        self._live: Live | None = None
        self._held = ""
        self._said = ""
        """Of the answer that is being given."""
        self._is_mid_line = False

    def __enter__(self) -> Self:
        """Nothing is on the screen yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take away what is no part of the output."""
        self._rows.clear()
        self._label = self._typed = ""
        self._draw()
        self._end_line()

    def show(self, event: pb.StreamRunResponse) -> None:
        """See `RunView`."""
        handler = getattr(self, f"_on_{event.WhichOneof('event')}", None)
        if handler is not None:
            handler(event)
            self._draw()

    def say(self, text: str, style: str = "") -> None:
        """See `RunView`."""
        self._end_line()
        self._console.print(output.styled(text, style))

    def typed(self, label: str, text: str) -> None:
        """See `RunView`."""
        self._label, self._typed = label, text
        self._draw()

    def finish(self, response: pb.SystemResponse) -> None:
        """See `RunView`. What was shown as it came is not shown again."""
        text, said = answer_text(response), self._said.strip()
        if text and (not said or said not in {text.strip(), response.output_json.strip()}):
            output.write_content(text)
        if response.HasField("error"):
            explain(response)

    def _on_started(self, event: pb.StreamRunResponse) -> None:
        if event.started.joined:
            self.say(f"joined the run {shortened(event.started.request_id)}, which is under way", "dim")
        elif event.started.resumed:
            self.say(f"the run {shortened(event.started.request_id)} goes on from its record", "dim")

    def _on_transition(self, event: pb.StreamRunResponse) -> None:
        went = event.transition
        if went.to_state == "EXECUTE" and went.attempt > 1:
            self.say(f"once more: {shortened(went.reason)}", "dim")

    def _on_inference_started(self, event: pb.StreamRunResponse) -> None:
        asked = event.inference_started
        again = f", attempt {asked.attempt}" if asked.attempt > 1 else ""
        self._rows[asked.name] = _Row(shortened(f"{asked.name}: asking {asked.engine}{again}"))
        self._said = ""

    def _on_text(self, event: pb.StreamRunResponse) -> None:
        if self._shows_text:
            self._rows.pop(event.text.inference, None)
            self._said += event.text.text
            self._held += event.text.text
        elif (row := self._rows.get(event.text.inference)) is not None:
            row.chars += len(event.text.text)
            row.detail = f"{row.chars:,} characters"

    def _on_inference_finished(self, event: pb.StreamRunResponse) -> None:
        answered = event.inference_finished
        self._rows.pop(answered.name, None)
        line = answer_line(answered)
        if line:
            self._flush()
            self.say(line, "yellow" if answered.HasField("error") else "dim")

    def _on_tool_started(self, event: pb.StreamRunResponse) -> None:
        started = event.tool_started
        self._rows[started.call_id] = _Row(called(started), self._level_of(started.tool))

    def _on_tool_update(self, event: pb.StreamRunResponse) -> None:
        row = self._rows.get(event.tool_update.call_id)
        if row is not None:
            row.detail = shortened(event.tool_update.message)

    def _on_tool_finished(self, event: pb.StreamRunResponse) -> None:
        ended = event.tool_finished
        row = self._rows.pop(ended.call_id, None) or _Row(shortened(ended.tool))
        failed = ended.HasField("error")
        self._flush()
        self._end_line()
        line = output.styled("✗ " if failed else "✓ ", "red" if failed else "green")
        line.append_text(output.styled(row.label))
        line.append_text(output.styled(f"  {row.level}" if row.level else "", output.LEVEL_STYLES.get(row.level, "")))
        line.append_text(output.styled(f"  {output.seconds(row.took_s)}  {outcome(ended)}", "dim"))
        self._console.print(line)

    def _draw(self) -> None:
        """Have spinners on the screen where something is under way, or typed; and text only where nothing is typed."""
        if not self._label or len(self._held) > MAX_HELD_CHARS:
            self._flush()
        wanted = bool(self._rows or self._label)
        if wanted and self._live is None:
            from rich.live import Live

            self._end_line()
            self._live = Live(
                console=self._console,
                get_renderable=self._render,
                refresh_per_second=_PER_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        elif not wanted:
            self._stop()
        elif self._live is not None:
            self._live.refresh()

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _flush(self) -> None:
        if self._held:
            self._stop()
            output.write_piece(self._held)
            self._is_mid_line = not self._held.endswith("\n")
            self._held = ""

    def _end_line(self) -> None:
        if self._is_mid_line:
            output.write_piece("\n")
            self._is_mid_line = False

    def _render(self) -> Group:
        from rich.console import Group

        rows = tuple(self._rows.values())
        lines = [_row_text(each) for each in rows[:MAX_ROWS]]
        if len(rows) > MAX_ROWS:
            lines.append(output.styled(f"  and {len(rows) - MAX_ROWS} more", "dim"))
        if self._label:
            # The end of a long line is what its writer wants to see.
            room = max(self._console.width - len(self._label) - 4, 8)
            lines.append(output.styled(f"{self._label}: {output.one_line(self._typed)[-room:]}▏", "bold"))
        for each in lines:
            each.no_wrap, each.overflow = True, "ellipsis"
        return Group(*lines)


def _row_text(row: _Row) -> Text:
    frame = _FRAMES[int(row.took_s * _PER_SECOND) % len(_FRAMES)]
    made = output.styled(f"{frame} {row.label}")
    made.append_text(output.styled(f"  {row.level}" if row.level else "", output.LEVEL_STYLES.get(row.level, "")))
    made.append_text(output.styled(f"  {row.took_s:.1f} s  {row.detail}".rstrip(), "dim"))
    return made
