"""What a client has asked before it closes stdin is answered, as `printf … | fumehood mcp` needs, within a bound."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.sidecar import Sidecar

from .support import BOUND_S, START

INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call(number: int, tool: str, **arguments: object) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def piped(sidecar: Sidecar, *messages: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The answers, by id, of a client that writes everything, closes stdin, and then reads."""
    command = [sys.executable, "-P", "-m", "fumehood_server", "mcp", "--address", sidecar.target]
    text = "".join(json.dumps(each) + "\n" for each in (START, INITIALIZED, *messages))
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return {each["id"]: each for each in answers if "id" in each}


def test_what_was_asked_before_stdin_ended_is_answered(sidecar: Sidecar) -> None:
    answers = piped(sidecar, call(2, "say", text="first"), call(3, "say", text="second"))
    texts = [answers[number]["result"]["content"][0]["text"] for number in (2, 3)]
    assert texts == ["first", "second"]


def test_call_that_does_not_end_holds_its_process_up_no_longer_than_the_bound(sidecar: Sidecar) -> None:
    answers = piped(sidecar, call(2, "wait"), call(3, "say", text="beside"))
    assert answers[3]["result"]["content"][0]["text"] == "beside"
    assert "result" not in answers.get(2, {})


def test_what_is_cancelled_or_never_answered_is_not_waited_for(sidecar: Sidecar) -> None:
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
    answers = piped(sidecar, call(2, "wait"), cancelled, call(3, "say", text="beside"))
    assert set(answers) == {1, 3}
