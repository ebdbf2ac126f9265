"""What an operator does at the command line: try the rules, see what waits, decide, and prove it afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import tempfile
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_evidence.page import read
from fumehood_evidence.verification import verify
from fumehood_server.journal.keys import public_keys

from tests import preloaded
from tests.approvals.support import BOUND_S, Place
from tests.cli.command import COMMAND, Done, environment, fumehood
from tests.sidecar import Sidecar

RULES = """
[[policy.rule]]
name = "large"
permission = "deny"
tools = ["note"]
when = [{ pointer = "/amount", min = 1000 }]
[[policy.rule]]
name = "asked"
permission = "require_approval"
tools = ["no*"]
"""


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Place, Sidecar]]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        place = Place(folder)
        with place.sidecar(RULES) as sidecar:
            yield place, sidecar


def run(served: tuple[Place, Sidecar], *arguments: str) -> Done:
    return fumehood(*arguments, address=served[1].target)


@contextlib.contextmanager
def called(served: tuple[Place, Sidecar], line: str) -> Iterator[tuple[Any, threading.Thread]]:
    """A call that waits for its approval, which is given when the block ends."""
    place, sidecar = served
    results: list[Any] = []
    with grpc.insecure_channel(sidecar.target) as channel:
        stub = ToolServiceStub(channel)
        asked = stub.CallTool(place.call(line, line, at_once=True), timeout=BOUND_S).result
        assert asked.error.code == "TOOL_APPROVAL_REQUIRED"
        thread = threading.Thread(
            target=lambda: results.append(stub.CallTool(place.call(line, line), timeout=BOUND_S).result)
        )
        thread.start()
        yield results, thread
        thread.join(BOUND_S)


def test_policy_test_says_what_would_happen_and_runs_nothing(served: tuple[Place, Sidecar]) -> None:
    config = str(served[0].folder / "fumehood.toml")

    def said(arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = run(served, "policy", "test", "note", arguments, "--config", config, "--json").json
        return found

    denied = said('{"amount": 1000}')
    assert (denied["permission"], denied["rules"], sorted(denied["matched"])) == ("deny", ["large"], ["asked", "large"])
    asked = said('{"amount": 1}')
    assert (asked["permission"], asked["rules"]) == ("require_approval", ["asked"])
    assert asked["requirements"] == [
        {"rule": "asked", "approvals": 1, "approvers": [], "self_approval": False, "standing": False}
    ]
    assert asked["policy_version"] == denied["policy_version"]
    text = run(served, "policy", "test", "note", '{"amount": 1000}', "--config", config)
    assert "deny: decided by large" in text.stdout
    assert served[0].lines() == []


def test_a_call_is_approved_changed_and_proven_by_commands(served: tuple[Place, Sidecar], tmp_path: Path) -> None:
    place, _ = served
    with called(served, "mine") as (results, _):
        (waiting,) = run(served, "approvals", "list", "--json").json["approvals"]
        assert (waiting["tool"], waiting["state"], waiting["arguments"]["line"]) == ("note", "pending", "mine")
        assert waiting["approval_id"] in run(served, "approvals", "list").stdout
        approved = run(
            served,
            *("approvals", "approve", waiting["approval_id"], "--reason", "agreed"),
            *("--arguments", place.arguments("theirs"), "--json"),
        ).json
        assert (approved["state"], approved["decisions"][0]["reason"]) == ("approved", "agreed")
    assert not results[0].is_error
    assert place.lines() == ["theirs"]
    again = run(served, "approvals", "approve", waiting["approval_id"], "--json")
    assert (again.status, again.error["code"]) == (2, "APPROVAL_CLOSED")
    config = str(place.folder / "fumehood.toml")
    shown = json.loads(fumehood("journal", "show", "mine", "--config", config, "--json").stdout)
    assert [each["type"] for each in shown["events"]][:4] == [
        "approval_requested",
        "approval_decided",
        "execute_start",
        "approval_used",
    ]
    drawn = fumehood("journal", "show", "mine", "--config", config).stdout
    assert "approve by unix: (no name) agreed" in drawn
    assert drawn.count("note") == 1, "the call has one bar"
    page = tmp_path / "evidence.html"
    for _ in range(100):  # a checkpoint is signed within a second
        made = fumehood("journal", "evidence", "--call", "mine", "-o", str(page), "--config", config)
        if made.status == 0:
            found = verify(read(page.read_text()), public_keys(place.folder / ".fumehood"))
            if found.calls and found.calls[0].outcome == "OK":
                break
    assert [(each.call_id, each.outcome) for each in found.calls] == [("mine", "OK")]
    assert "approval_decided" in page.read_text()


def test_a_command_says_what_its_call_waits_for_or_does_not_wait(served: tuple[Place, Sidecar]) -> None:
    place, sidecar = served
    arguments = ("call", "note", "--args", place.arguments("waits"))
    left = run(served, *arguments, "--no-wait", "--call-id", "left", "--json")
    assert (left.status, left.json["error"]["code"]) == (1, "TOOL_APPROVAL_REQUIRED")
    approval_id = left.json["error"]["details"]["approval_id"]
    assert run(served, "approvals", "approve", approval_id).status == 0
    assert run(served, *arguments, "--call-id", "left").stdout.strip() == str(len(place.lines()))
    with preloaded.Popen(
        [*COMMAND, *arguments], env=environment(sidecar.target), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as waiting:
        assert waiting.stderr is not None
        said = waiting.stderr.readline().decode()
        assert "waits to be approved: fumehood approvals approve approval-" in said
        assert run(served, "approvals", "approve", said.split()[-1]).status == 0
        assert waiting.wait(BOUND_S) == 0
    assert place.lines()[-2:] == ["waits", "waits"]


def test_a_call_is_denied_and_withdrawn_by_commands(served: tuple[Place, Sidecar]) -> None:
    for verb, reason in (("deny", "approval_denied"), ("withdraw", "approval_withdrawn")):
        with called(served, verb) as (results, _):
            (waiting,) = run(served, "approvals", "list", "--json").json["approvals"]
            assert run(served, "approvals", verb, waiting["approval_id"], "--reason", "no").status == 0
        assert json.loads(results[0].error.details_json)["reason"] == reason
    assert "No call waits" in run(served, "approvals", "list").stderr
    gone = run(served, "approvals", "deny", "approval-none", "--reason", "no", "--json")
    assert (gone.status, gone.error["code"]) == (2, "APPROVAL_NOT_FOUND")


@contextlib.contextmanager
def screen(served: tuple[Place, Sidecar]) -> Iterator[tuple[Callable[[str], None], Callable[[str], None]]]:
    """`fumehood approvals watch` on a terminal: what waits until it shows a text, and what presses keys."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    more = {"TERM": "xterm", "COLUMNS": "200", "LINES": "50", "EDITOR": "sed -i s/edited/changed/"}
    command = [*COMMAND, "approvals", "watch"]
    process = preloaded.Popen(
        command, env=environment(served[1].target, more), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    written = bytearray()

    def shows(text: str) -> None:
        while text not in written.decode(errors="replace"):
            ready, _, _ = select.select([ours], [], [], BOUND_S)
            assert ready, written.decode(errors="replace")
            written.extend(os.read(ours, 65536))
        written.clear()

    def press(keys: str) -> None:
        os.write(ours, keys.encode())

    try:
        yield shows, press
        press("q")
        with contextlib.suppress(OSError):  # EIO: the last holder of the other side has closed it
            while os.read(ours, 65536):
                pass
        assert process.wait(BOUND_S) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)


def test_calls_are_decided_on_a_live_screen(served: tuple[Place, Sidecar]) -> None:
    (served[0].diary / "diary").unlink(missing_ok=True)
    with screen(served) as (shows, press):
        shows("0 calls waiting")
        with called(served, "seen") as (results, _):
            shows('"line": "seen"')
            press("y")
            shows("note: approved")
        assert not results[0].is_error
        with called(served, "edited") as (results, _):
            shows('-  "line": "seen"')
            press("e")
            shows("note: approved")
        assert not results[0].is_error
        with called(served, "refused") as (results, _):
            shows("refused")
            press("n")
            shows("Why is note denied")
            press("no such thing\n")
            shows("note: denied")
        assert "no such thing" in results[0].error.message
    assert served[0].lines() == ["seen", "changed"]
