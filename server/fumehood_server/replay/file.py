"""Writes recorded calls as JSON Lines, for `fumehood_sdk.testing.replay`: a recorded run is a test of its plugin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson

from fumehood_server.replay.record import ReplayableCall, why_not

FORMAT = 1


def replay_lines(calls: Iterable[ReplayableCall]) -> Iterator[bytes]:
    """A line that names the format, and one for each call that can be run again."""
    yield orjson.dumps({"fumehood_replay": FORMAT}) + b"\n"
    for call in calls:
        if why_not(call) or call.values is None or call.result is None or call.arguments is None:
            continue
        fields = {
            "call_id": call.call_id,
            "tool": call.tool,
            "plugin": call.plugin,
            "context": dict(call.context),
            "arguments_json": call.arguments.decode(errors="replace"),
            "values": call.values.values,
            "result": orjson.Fragment(call.result),
        }
        yield orjson.dumps(fields, default=tuple) + b"\n"
