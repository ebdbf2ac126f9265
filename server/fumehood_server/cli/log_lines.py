"""Prints a plugin's log lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fumehood.v1 import plugin_service_pb2

_COLOURS = {"debug": "bright_black", "info": None, "warning": "yellow", "error": "red"}


def print_log_line(line: plugin_service_pb2.TailPluginLogsResponse) -> None:
    """Print one line: UTC time, source, message."""
    from fumehood_server.cli.output import Part, plural, say
    from fumehood_server.model.text import visible_line

    if line.dropped:
        say(Part(f"({plural(line.dropped, 'line')} dropped: too many at once)", fg="yellow"))
    clock = line.time.ToDatetime().strftime("%H:%M:%S")
    fields = f" {line.fields_json}" if line.fields_json else ""
    quiet = line.source == "sidecar" and line.level == "info"
    say(
        Part(visible_line(f"{clock} {line.source:<7} "), dim=True),
        Part(visible_line(f"{line.message}{fields}"), fg=_COLOURS.get(line.level), dim=quiet),
    )
