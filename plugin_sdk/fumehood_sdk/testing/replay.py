"""Runs recorded calls again in a test, with the values that they took from outside."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

from fumehood_sdk.content import Blob, Text
from fumehood_sdk.divergence import Divergence, first_divergence
from fumehood_sdk.plugin import Plugin
from fumehood_sdk.testing.results import CallResult
from fumehood_sdk.testing.tester import ToolTester
from fumehood_sdk.wire.recorded_values import RecordedValue


class ReplayFailed(AssertionError):  # noqa: N818 - says what happened
    """Calls did not run as they were recorded. The message names each, with a diff."""


def replay(file: str | Path, plugin: Plugin) -> tuple[str, ...]:
    """Run the calls of a file of `fumehood journal replay RUN -o FILE` again, with what they took from outside.

    Nothing of that is asked for again: `ctx.now`, `ctx.side_effect`, `ctx.http` and `ctx.secret` give what they gave.
    What a tool does without `ctx` it does here too, since there is no sandbox.
    Returns the ids of the calls, all of which returned what they returned.

    Raises:
        ReplayFailed: at least one did not.
        LookupError: the plugin has no such tool.
        ValueError: the file is none.
    """
    problems, replayed = [], []
    with Path(file).open("rb") as lines:
        if json.loads(next(lines, b"null")) != {"fumehood_replay": 1}:
            raise ValueError(f"{file} is no file of recorded calls that this version reads")
        for line in lines:
            fields = json.loads(line)
            divergence = _replay_call(fields, plugin)
            replayed.append(fields["call_id"])
            if divergence is not None:
                problems.append(
                    f"{fields['tool']} {fields['call_id']}: {divergence.kind}: {divergence.message}\n{divergence.diff}"
                )
    if problems:
        raise ReplayFailed("\n".join(problems))
    return tuple(replayed)


def _replay_call(fields: dict[str, Any], plugin: Plugin) -> Divergence | None:
    values = [RecordedValue(*each) for each in fields["values"]]
    # The operator may have put a prefix before it.
    name = max((each for each in plugin.tools if fields["tool"].endswith(each)), key=len, default=fields["tool"])
    tester = ToolTester(plugin, call_id=fields["call_id"], correlation=fields["context"])
    running = tester.start_replay(name, fields["arguments_json"].encode(), values)
    return first_divergence(values, running.asked(), _recorded_result(fields["result"]), _shown(running.result()))


def _recorded_result(result: dict[str, Any]) -> bytes:
    error = result["error"]
    if error is None:
        details = json.loads(result["details_json"]) if result["details_json"] else None
        return _sorted_json([result["content"], details, result["terminate"]])
    facts = {name: value for name, value in error["details"].items() if name != "reason"}
    return _sorted_json([error["message"], error["details"].get("reason", ""), error["retryable"], facts])


def _block(block: Text | Blob) -> dict[str, Any]:
    """As the sidecar records it, which has no key for what is not said."""
    if isinstance(block, Text):
        fields: dict[str, Any] = {"text": block.text} | ({"media_type": block.media_type} if block.media_type else {})
    else:
        fields = {"data": b64encode(block.data).decode(), "media_type": block.media_type}
    if block.resource_uri:
        fields["resource_uri"] = block.resource_uri
    return fields if block.annotations is None else {**fields, "annotations": block.annotations}


def _shown(result: CallResult) -> bytes:
    error = result.error
    if error is None:
        return _sorted_json([[_block(each) for each in result.content], result.details, result.terminate])
    return _sorted_json([error.message, error.reason, error.retryable, error.details])


def _sorted_json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
