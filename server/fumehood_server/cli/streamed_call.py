"""`fumehood call --stream`: what happens in a call, as a person or a program reads it."""

from __future__ import annotations

import contextlib

from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.cli import json_output
from fumehood_server.cli.client import SidecarClient
from fumehood_server.cli.failure import CommandError, ExitStatus
from fumehood_server.cli.output import note, print_json
from fumehood_server.cli.progress import PlainWatcher, Watcher, make_watcher
from fumehood_server.cli.question_prompt import answer_on_terminal
from fumehood_server.cli.resumed_stream import stream_call


def streamed(
    client: SidecarClient,
    request: pb.CallToolRequest,
    started: list[str],
    *,
    as_json: bool,
    no_wait: bool,
    quiet: bool = False,
) -> tool_pb2.ToolResult:
    """Run a streamed call and show it. Puts the call's id into `started` once it is known.

    `quiet`: nothing is shown of it but what its tool asks.

    Raises:
        CommandError: the call was refused, or its sidecar was lost.
    """
    watcher = PlainWatcher() if as_json or quiet else make_watcher(request.tool)
    is_again = False

    def on_lost() -> None:
        nonlocal is_again
        is_again = True
        note("The connection was lost and is being made again. The call goes on.")

    with watcher, contextlib.closing(stream_call(client, request, on_lost=on_lost)) as events:
        for event in events:
            if event.HasField("started"):
                started[:] = [event.started.call_id]
            if event.HasField("question") and not as_json:
                answer_on_terminal(client, event.question)
            elif as_json:
                _print(event, is_again=is_again, asks_again=not no_wait)
            elif not quiet:
                _show(event, watcher, is_again=is_again)
            if event.HasField("finished"):
                return event.finished
    raise CommandError(
        "the stream ended before the call did",
        "The sidecar's log says more.",
        code="STREAM_BROKEN",
        status=ExitStatus.UNREACHABLE,
    )


def _show(event: pb.StreamToolResponse, watcher: Watcher, *, is_again: bool) -> None:
    if event.HasField("update"):
        watcher.show_update(event.update)
    elif event.HasField("started") and is_again and event.started.missed_updates:
        note(f"{event.started.missed_updates:,} updates were lost meanwhile.")


def _print(event: pb.StreamToolResponse, *, is_again: bool, asks_again: bool) -> None:
    """A line of JSON. `asks_again`: a call that is not approved yet is sent once more, and that is not its end."""
    if event.HasField("started") and is_again:
        shape = {"call_id": event.started.call_id, "missed_updates": event.started.missed_updates}
        print_json({"event": "rejoined", **shape}, compact=True)
    elif event.HasField("started"):
        print_json({"event": "started", "call_id": event.started.call_id, "tool": event.started.tool}, compact=True)
    elif event.HasField("update"):
        print_json({"event": "update", **json_output.update_json(event.update)}, compact=True)
    elif event.HasField("question"):
        print_json({"event": "question", **json_output.question_json(event.question)}, compact=True)
    elif event.HasField("finished") and not (asks_again and event.finished.error.code == "TOOL_APPROVAL_REQUIRED"):
        print_json({"event": "finished", "result": json_output.result_json(event.finished)}, compact=True)
