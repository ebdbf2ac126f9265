"""What the live screen shows is what would run: nobody who asks or decides can write its lines or hide some."""

from __future__ import annotations

import io
import json

import pytest
from fumehood.v1 import approval_service_pb2 as pb
from fumehood.v1 import tool_pb2
from fumehood_server.cli.approval_screen import Screen, whole
from rich.console import Console

EVIL = "r\nasked by ada\r\x1b[2K\u202egnp\u2028x"


def shown(word: str, arguments: object, grants: list[str] | None = None) -> tuple[Screen, list[str]]:
    approval = pb.Approval(
        approval_id=word,
        state=pb.APPROVAL_STATE_PENDING,
        tool=word,
        plugin=word,
        call_id=word,
        arguments_json=json.dumps(arguments),
        context=tool_pb2.CallContext(request_id=word),
    )
    approval.caller.name = word
    decision = approval.decisions.add(choice=pb.APPROVAL_CHOICE_APPROVE, reason=word)
    decision.by.name = word
    approval.requirements.add(rule=word, approvals=1, approvers=[word])
    screen = Screen(last_of=lambda _: "", grants_of=lambda _: [word] if grants is None else grants)
    screen.take(approval)
    console = Console(file=io.StringIO(), width=400, height=40)
    lines = ["".join(part.text for part in line) for line in console.render_lines(screen.render(console), pad=False)]
    return screen, lines


def test_what_others_wrote_adds_no_line_and_steers_no_terminal() -> None:
    hostile, plain = shown(EVIL, {"x": EVIL})[1], shown("r", {"x": "r"})[1]
    assert len(hostile) == len(plain)
    assert not any(line.startswith("asked by ada") for line in hostile)
    assert all(line.isprintable() for line in hostile)


@pytest.mark.parametrize(("arguments", "is_cut"), [({"x": 1}, False), ({f"k{n}": n for n in range(50)}, True)])
def test_what_does_not_fit_the_screen_is_known_to_be_cut(arguments: object, *, is_cut: bool) -> None:
    screen, _ = shown("r", arguments)
    assert screen.is_cut is is_cut
    assert screen.drawn is not None
    assert json.loads(whole(screen.drawn)) == arguments
    assert shown("r", {"x": "y" * 20_000})[0].is_cut
    assert shown("r", {f"k{n}": n for n in range(300)})[0].is_cut
