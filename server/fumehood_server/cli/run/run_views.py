"""What is shown of a run where no terminal is: plain lines, JSON, or nothing but the end."""

from __future__ import annotations

import time
from typing import Protocol, Self

from fumehood.v1 import orchestration_service_pb2 as pb

from fumehood_server.cli import output
from fumehood_server.cli.run.run_ending import answer_text, explain
from fumehood_server.cli.run.run_json import event_json, response_json

MAX_SHOWN_CHARS = 100
"""Of arguments and results, on one line."""


class RunView(Protocol):
    """Shows a run. A context manager, so that the screen is as it was however the run ends."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(self, *_: object) -> None:
        """End."""

    def show(self, event: pb.StreamRunResponse) -> None:
        """Show one event, the last one included."""

    def say(self, text: str, style: str = "") -> None:
        """Show a line that is no event's. `style` is rich's, and of no meaning elsewhere."""

    def typed(self, label: str, text: str) -> None:
        """Show what is being typed. Both empty: nothing is."""

    def finish(self, response: pb.SystemResponse) -> None:
        """Show how it ended, once the context was left."""


class _NoScreen:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def typed(self, label: str, text: str) -> None:
        """Nobody types."""


class JsonView(_NoScreen):
    """A line of JSON for each event; with `quiet` the response alone. Remarks go to stderr."""

    def __init__(self, *, quiet: bool) -> None:
        """Nothing is printed yet."""
        self._quiet = quiet

    def show(self, event: pb.StreamRunResponse) -> None:
        """See `RunView`."""
        shape = None if self._quiet else event_json(event)
        if shape is not None:
            output.print_json(shape, compact=True)

    def say(self, text: str, style: str = "") -> None:  # noqa: ARG002 - see RunView
        """See `RunView`."""
        output.note(text)

    def finish(self, response: pb.SystemResponse) -> None:
        """See `RunView`."""
        if self._quiet:
            output.print_json(response_json(response))


class QuietView(_NoScreen):
    """The answer alone."""

    def show(self, event: pb.StreamRunResponse) -> None:
        """Nothing."""

    def say(self, text: str, style: str = "") -> None:  # noqa: ARG002 - see RunView
        """See `RunView`."""
        output.note(text)

    def finish(self, response: pb.SystemResponse) -> None:
        """See `RunView`."""
        show_end(response)


class PlainView(_NoScreen):
    """A line on stderr for what happens, and at the end the answer on stdout."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self._started: dict[str, tuple[str, float]] = {}
        """By call: its tool, and when it began."""

    def show(self, event: pb.StreamRunResponse) -> None:
        """See `RunView`."""
        if event.HasField("tool_started"):
            started = event.tool_started
            self._started[started.call_id] = (started.tool, time.monotonic())
        call_id = event.tool_update.call_id or event.tool_finished.call_id
        tool, began = self._started.get(call_id, (call_id, time.monotonic()))
        line = event_line(event, tool, time.monotonic() - began)
        if line:
            output.note(line)
        if event.HasField("tool_finished"):
            self._started.pop(call_id, None)

    def say(self, text: str, style: str = "") -> None:  # noqa: ARG002 - see RunView
        """See `RunView`."""
        output.note(text)

    def finish(self, response: pb.SystemResponse) -> None:
        """See `RunView`."""
        show_end(response)


def show_end(response: pb.SystemResponse) -> None:
    """The answer on stdout, and why it failed on stderr."""
    text = answer_text(response)
    if text:
        output.write_content(text)
    if response.HasField("error"):
        explain(response)


def event_line(event: pb.StreamRunResponse, tool: str, took_s: float) -> str:
    """One event on one line, its text bounded and made printable. Empty: it is not worth one.

    `tool` is that of the call that the event is about, and `took_s` how long that has taken.
    """
    match event.WhichOneof("event"):
        case "inference_started":
            asked = event.inference_started
            again = f", attempt {asked.attempt}" if asked.attempt > 1 else ""
            return shortened(f"{asked.name}: asking {asked.engine}{again}")
        case "inference_finished":
            return answer_line(event.inference_finished)
        case "tool_started":
            return f"tool {called(event.tool_started)}"
        case "tool_update":
            return f"tool {output.one_line(tool)}: {shortened(event.tool_update.message)}"
        case "tool_finished":
            ended = event.tool_finished
            return f"tool {output.one_line(ended.tool)} {outcome(ended)} in {output.seconds(took_s)}"
    return ""


def answer_line(answered: pb.InferenceFinished) -> str:
    """What became of an inference, where that is not what everybody expects."""
    if answered.HasField("error"):
        end = "it is asked again" if answered.retried else "not asked again"
        return f"{shortened(answered.name)}: {output.one_line(answered.error.message)}; {end}"
    if answered.recorded:
        return f"{shortened(answered.name)}: served from the record"
    if answered.finish_reason in {"length", "filtered"}:
        return f"{shortened(answered.name)}: the answer is cut off ({shortened(answered.finish_reason)})"
    return ""


def called(started: pb.ToolStarted) -> str:
    """A call as `name(key=value, …)`, shortened."""
    arguments = output.json_or_text(started.arguments_json)
    if isinstance(arguments, dict):
        shown = ", ".join(f"{key}={output.to_json(value, compact=True)}" for key, value in arguments.items())
    else:
        shown = started.arguments_json
    return f"{shortened(started.tool)}({shortened(shown)})"


def outcome(ended: pb.ToolFinished) -> str:
    """How a call ended, shortened."""
    if ended.HasField("error"):
        return f"failed: {shortened(ended.error.message)}  [{output.one_line(ended.error.code)}]"
    return f"ok: {shortened(ended.text)}" if ended.text else "ok"


def shortened(text: str) -> str:
    """One printable line of at most `MAX_SHOWN_CHARS`."""
    line = output.one_line(text[: 4 * MAX_SHOWN_CHARS])
    return line if len(line) <= MAX_SHOWN_CHARS else f"{line[: MAX_SHOWN_CHARS - 1]}…"
