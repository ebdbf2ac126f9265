"""What an operator does at the command line: try the rules, see what waits, decide, and prove it afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import tool_service_pb2 as tool_pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_evidence.page import read
from fumehood_evidence.verification import Found, verify
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
    for arguments in (['{"amount": 1000}'], ["amount=1000", "line=x"], ['{"amount": 1}', "amount=1000"]):
        text = run(served, "policy", "test", "note", *arguments, "--config", config)
        assert "deny: decided by large" in text.stdout, arguments
    mistaken = run(served, "policy", "test", "note", "x", "--config", config)
    assert (mistaken.status, '"x" is not an argument' in mistaken.stderr) == (2, True)
    assert "--args" not in mistaken.stderr
    mistyped = run(served, "policy", "test", "note", "amount=many", "--config", config)
    assert (mistyped.status, "is not integer" in mistyped.stderr) == (2, True)
    assert served[0].lines() == []


def test_a_call_is_approved_changed_and_proven_by_commands(served: tuple[Place, Sidecar]) -> None:
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
    page, found = evidence(place.folder, "mine")
    assert [each.call_id for each in found.calls] == ["mine"]
    assert "approval_decided" in page


def evidence(folder: Path, call_id: str) -> tuple[str, Found]:
    """The page of a call that has ended, and what it proves: once a checkpoint is signed, a second after the end."""
    page, config = folder / f"{call_id}.html", str(folder / "fumehood.toml")
    ends_at = time.monotonic() + BOUND_S
    while True:
        made = fumehood("journal", "evidence", "--call", call_id, "-o", str(page), "--config", config)
        if made.status == 0:
            found = verify(read(page.read_text()), public_keys(folder / ".fumehood"))
            if found.calls and found.calls[0].outcome == "OK":
                return page.read_text(), found
        assert time.monotonic() < ends_at, made


def test_a_command_says_what_its_call_waits_for_or_does_not_wait(served: tuple[Place, Sidecar]) -> None:
    place, sidecar = served
    arguments = ("call", "note", "--args", place.arguments("waits"))
    left = run(served, *arguments, "--no-wait", "--call-id", "left", "--json")
    assert (left.status, left.json["error"]["code"]) == (1, "TOOL_APPROVAL_REQUIRED")
    approval_id = left.json["error"]["details"]["approval_id"]
    assert "left" in run(served, "approvals", "list").stdout
    approved = run(served, "approvals", "approve", approval_id)
    assert (approved.status, "the same call with --call-id left does" in approved.stderr) == (0, True)
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


def test_a_call_that_only_waited_is_not_said_to_have_begun(served: tuple[Place, Sidecar]) -> None:
    place, sidecar = served
    (place.diary / "diary").unlink(missing_ok=True)
    arguments = ("call", "note", "--args", place.arguments("never"))
    for timeout_s in ("0.5", "5", "30"):  # until one was long enough for a busy machine to ask for the approval
        late = run(served, *arguments, "--timeout", timeout_s, "--call-id", f"late-{timeout_s}")
        if "fumehood approvals approve" in late.stderr:
            break
    assert "note had not begun when its time was over" in late.stderr
    assert "did not finish" not in late.stderr
    (named,) = set(re.findall(r"`fumehood (approvals approve \S+)`", late.stderr))
    assert run(served, *named.split()).status == 0, "the command that it names works"
    for stream in ((), ("--stream",)):
        with preloaded.Popen(
            [*COMMAND, *arguments, "--call-id", f"cut{len(stream)}", *stream],
            env=environment(sidecar.target),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as waiting:
            assert waiting.stderr is not None
            approval_id = waiting.stderr.readline().split()[-1]
            with grpc.insecure_channel(sidecar.target) as channel:
                _until_known(ToolServiceStub(channel), f"cut{len(stream)}")
            waiting.send_signal(signal.SIGINT)
            _, said = waiting.communicate(timeout=BOUND_S)
        assert waiting.returncode == 130
        assert f"cancelled: the call cut{len(stream)} of note had not begun" in said, said
        assert "stays done" not in said
        is_open = run(served, "approvals", "list", approval_id, "--json").json["approvals"][0]["state"] == "pending"
        assert (f"`fumehood approvals approve {approval_id}`" in said) is is_open, said
    assert place.lines() == []
    for each in run(served, "approvals", "list", "--json").json["approvals"]:
        run(served, "approvals", "withdraw", each["approval_id"])


def _until_known(tools: ToolServiceStub, call_id: str) -> None:
    """Return once the sidecar has a call that waits."""
    ends_at = time.monotonic() + BOUND_S
    while True:
        try:
            tools.GetCall(tool_pb.GetCallRequest(call_id=call_id), timeout=BOUND_S)
        except grpc.RpcError:
            assert time.monotonic() < ends_at
            time.sleep(0.02)
        else:
            return


def test_a_refusal_says_what_to_do(served: tuple[Place, Sidecar]) -> None:
    place, _ = served
    for command in (("approve", "nonsense"), ("list", "nonsense")):
        unknown = run(served, "approvals", *command)
        assert (unknown.status, "`fumehood approvals list`" in unknown.stderr) == (2, True)
    asked = run(served, "call", "note", "--args", place.arguments("x"), "--no-wait", "--call-id", "todo", "--json")
    approval_id = asked.json["error"]["details"]["approval_id"]
    stands = run(served, "approvals", "approve", approval_id, "--standing")
    assert (stands.status, "[[policy.rule]]" in stands.stderr, "standing = true" in stands.stderr) == (2, True, True)
    assert "[[caller]]" not in stands.stderr
    words = {"_FUMEHOOD_COMPLETE": "bash_complete", "COMP_WORDS": "fumehood approvals approve ap", "COMP_CWORD": "3"}
    completed = fumehood(address=served[1].target, more=words).stdout.split()
    assert completed == [f"plain,{approval_id}"]
    assert run(served, "approvals", "deny", approval_id, "--reason", "no").status == 0
    closed = run(served, "approvals", "withdraw", approval_id)
    assert (closed.status, "Mend" in closed.stderr) == (2, False)
    assert "Nothing more can be decided" in closed.stderr
    unread = run(served, "approvals", "approve", approval_id, "--arguments", "x")
    assert (unread.status, "--arguments is not JSON" in unread.stderr) == (2, True)


def test_what_rules_that_are_taken_up_void_and_misname_is_said(place: Place) -> None:
    more = RULES + '[[policy.rule]]\nname = "forgotten"\npermission = "deny"\ntools = ["notte", "note", "git_*"]\n'
    with place.sidecar(more) as sidecar:
        there = (place, sidecar)
        denied = run(there, "call", "note", "--args", place.arguments("x"), "--no-wait", "--json")
        assert denied.json["error"]["code"] == "TOOL_DENIED", "control: the rule names note as well"
        told = [line["message"] for line in sidecar.log() if line["event"] == "rule_names_no_tool"]
        assert told == [
            '[[policy.rule]] forgotten: no tool is called "notte": did you mean "note"?',
            '[[policy.rule]] forgotten: the name of no tool begins as "git_*" says',
        ]
        path = sidecar.folder / "fumehood.toml"
        path.write_text(path.read_text().replace('"notte", "note"', '"notte"'))
        reloaded = run(there, "reload")
        assert reloaded.stdout == "taken up: [[policy.rule]]\n"
        assert reloaded.stderr.splitlines() == told
        asked = run(there, "call", "note", "--args", place.arguments("x"), "--no-wait", "--call-id", "void", "--json")
        approval_id = asked.json["error"]["details"]["approval_id"]
        path.write_text(path.read_text().replace('"notte", "git_*"', '"note"').replace("deny", "require_approval"))
        changed = run(there, "reload", "--json").json
        assert (changed["keys"], changed["notes"], changed["changed"]) == (["rules"], [], [])
        listed = run(there, "approvals", "list")
        assert (" void " in listed.stdout, "pending" in listed.stdout) == (True, False)
        assert f"{approval_id} is void: the rules have changed since it was asked for." in listed.stderr
        refused = run(there, "approvals", "approve", approval_id)
        assert (refused.status, f"{approval_id} is void" in refused.stderr) == (2, True)
        assert "Have the call sent again" in refused.stderr
        with screen(there) as (shows, press):
            shows("its call asks for another one when it is sent again")
            press("y")
            shows("is void: the rules have changed")
        again = run(there, "call", "note", "--args", place.arguments("x"), "--no-wait", "--call-id", "void", "--json")
        assert again.json["error"]["details"]["approval_id"] != approval_id
        assert run(there, "reload").stdout == "Taken up: nothing is added, removed or changed.\n"


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
