"""Prints a plugin's log lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fumehood.v1 import plugin_service_pb2

_COLOURS = {"debug": "bright_black", "info": None, "warning": "yellow", "error": "red"}


def print_log_line(line: plugin_service_pb2.TailPluginLogsResponse) -> None:
    """Print one line: UTC time, source, message."""
    from fumehood_server.cli.output import plural, visible

    if line.dropped:
        click.echo(click.style(f"({plural(line.dropped, 'line')} dropped: too many at once)", fg="yellow"))
    clock = line.time.ToDatetime().strftime("%H:%M:%S")
    fields = f" {line.fields_json}" if line.fields_json else ""
    text = visible(f"{line.message}{fields}")
    click.echo(
        click.style(f"{clock} {line.source:<7} ", dim=True)
        + click.style(text, fg=_COLOURS.get(line.level), dim=line.source == "sidecar" and line.level == "info")
    )
