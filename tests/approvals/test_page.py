"""What docs/approvals.md says of standing approvals: its rule and its commands, as they stand there."""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from fumehood.v1 import tool_pb2
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_server.calls.steps.approval_errors import not_approved
from fumehood_server.model.taxonomy import Code

from tests.approvals.support import BOUND_S, Place
from tests.cli.command import Done, fumehood
from tests.sidecar import Sidecar

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "approvals.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Standing approvals\n")[2].partition("\n## ")[0]
RULE = re.findall(r"```toml\n(.*?)```", SECTION, re.DOTALL)[0]
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("fumehood ")
]
GIVEN = [line for line in COMMANDS if " approve " in line]


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Place, Sidecar]]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        place = Place(folder)
        with place.sidecar(RULE) as sidecar:
            yield place, sidecar


def called(served: tuple[Place, Sidecar], line: str, call_id: str, session_id: str) -> tool_pb2.ToolResult:
    place, sidecar = served
    request = place.call(line, call_id, at_once=True)
    request.context.session_id = session_id
    with grpc.insecure_channel(sidecar.target) as channel:
        result: tool_pb2.ToolResult = ToolServiceStub(channel).CallTool(request, timeout=BOUND_S).result
    return result


def typed(served: tuple[Place, Sidecar], line: str, *ids: str, more: tuple[str, ...] = ()) -> Done:
    """Run a line of the page, with the ids that it leaves open."""
    for found in ids:
        line = re.sub(r"(approval|standing)-[0-9a-f]+…", found, line, count=1)
    done = fumehood(*shlex.split(line)[1:], *more, address=served[1].target)
    assert done.status == 0, done
    return done


@pytest.mark.parametrize("number", range(len(GIVEN)))
def test_the_pages_commands_let_later_calls_begin_until_they_take_it_back(
    served: tuple[Place, Sidecar], number: int
) -> None:
    session, like = f"session-{number}", f"log: {number}"
    asked = called(served, like, f"first-{number}", session)
    assert asked.error.code == "TOOL_APPROVAL_REQUIRED"
    approval_id = json.loads(asked.error.details_json)["approval_id"]
    shape = typed(served, GIVEN[number], approval_id, more=("--json",)).json
    standing_id = shape["decisions"][0]["standing_id"]
    assert not called(served, like, f"second-{number}", session).is_error
    other = called(served, "other", f"other-{number}", session)
    assert other.error.code == "TOOL_APPROVAL_REQUIRED"
    for each in (line for line in COMMANDS if line not in GIVEN):
        assert standing_id in typed(served, each, standing_id).stdout
    assert called(served, like, f"third-{number}", session).error.code == "TOOL_APPROVAL_REQUIRED"


def test_the_rules_say_beforehand_that_an_approval_may_stand(served: tuple[Place, Sidecar]) -> None:
    place, sidecar = served
    config = str(place.folder / "fumehood.toml")
    said = fumehood("policy", "test", "note", place.arguments("x"), "--config", config, address=sidecar.target)
    assert "notes asks for 1 approval, which may stand" in said.stdout


def test_each_reason_why_an_approval_does_not_serve_is_in_the_table() -> None:
    protocol = (DOCS / "protocol.md").read_text(encoding="utf-8")
    row = next(line for line in protocol.splitlines() if "| its approval was denied" in line)
    told = set(re.findall(r"`(approval_[a-z_]+)`", row)) - {"approval_id"}
    assert all(not_approved("note", "", each.removeprefix("approval_")).code is Code.TOOL_DENIED for each in told)
    states = {"denied", "withdrawn", "expired", "changed", "used", "not_found", "revoked", "too_many"}
    assert told == {f"approval_{each}" for each in states}
