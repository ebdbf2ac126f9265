"""What an approver does at the command line with approvals that stand: give, list, revoke, and find them in records."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import approval_service_pb2 as apb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.standing_terms import condition, condition_text

from tests.approvals.support import BOUND_S, Place
from tests.approvals.test_commands import called, evidence, run, screen
from tests.cli.command import fumehood
from tests.sidecar import Sidecar

RULES = """
[[policy.rule]]
name = "stands"
permission = "require_approval"
tools = ["note"]
standing = true
[[policy.rule]]
name = "each"
permission = "require_approval"
tools = ["note"]
when = [{ pointer = "/amount", min = 1000 }]
"""


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Place, Sidecar]]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        place = Place(folder)
        with place.sidecar(RULES) as sidecar:
            yield place, sidecar


def outcome(served: tuple[Place, Sidecar], line: str, call_id: str, amount: int = 0) -> Any:
    place, sidecar = served
    with grpc.insecure_channel(sidecar.target) as channel:
        request = place.call(line, call_id, at_once=True, amount=amount)
        return ToolServiceStub(channel).CallTool(request, timeout=BOUND_S).result


def asked(served: tuple[Place, Sidecar], line: str, call_id: str, amount: int = 0) -> str:
    """The approval that a call asks for."""
    error = outcome(served, line, call_id, amount).error
    assert error.code == "TOOL_APPROVAL_REQUIRED"
    return str(json.loads(error.details_json)["approval_id"])


def test_an_approval_is_made_to_stand_listed_found_in_records_and_revoked(served: tuple[Place, Sidecar]) -> None:
    place, _ = served
    approval_id = asked(served, "log: one", "one")
    terms = ("--standing", "--for", "2h", "--calls", "20", "--where", "/line=~^log: ", "--where", "/amount<=10")
    approved = run(served, "approvals", "approve", approval_id, "--reason", "nightly", *terms, "--json").json
    standing_id = approved["decisions"][0]["standing_id"]
    assert not outcome(served, "log: one", "one").is_error
    assert not outcome(served, "log: two", "two").is_error
    asked(served, "else", "three")
    (found,) = run(served, "approvals", "standing", "list", "--json").json["standing_approvals"]
    assert (found["standing_id"], found["state"], found["used"], found["calls"]) == (standing_id, "active", 1, 20)
    assert (found["applies"], found["reason"], found["call_id"], found["rules"]) == (True, "nightly", "one", ["stands"])
    assert found["conditions"] == [
        {"pointer": "/line", "one_of": [], "pattern": "^log: ", "min": None, "max": None},
        {"pointer": "/amount", "one_of": [], "pattern": "", "min": None, "max": 10.0},
    ]
    text = run(served, "approvals", "standing", "list").stdout
    assert "1 of 20" in text
    assert "/line=~^log: and /amount<=10" in text
    config = str(place.folder / "fumehood.toml")
    shown = json.loads(fumehood("journal", "show", "two", "--config", config, "--json").stdout)
    used = [each["data"] for each in shown["events"] if each["type"] == "standing_approval_used"]
    assert [(each["standing_id"], each["granted_with"]) for each in used] == [(standing_id, "one")]
    drawn = fumehood("journal", "show", "two", "--config", config).stdout
    assert standing_id in drawn
    assert "standing_approval_granted" in evidence(place.folder, "one")[0]
    page, found_by_reader = evidence(place.folder, "two")
    assert "standing_approval_used" in page
    assert any("of these calls shows it: one" in each for each in found_by_reader.not_proven)
    revoked = run(served, "approvals", "standing", "revoke", standing_id, "--reason", "enough", "--json").json
    assert (revoked["state"], revoked["revoked"]["reason"]) == ("revoked", "enough")
    asked(served, "log: four", "four")
    assert "No approval stands" in run(served, "approvals", "standing", "list").stderr
    assert standing_id in run(served, "approvals", "standing", "list", "--all").stdout
    again = run(served, "approvals", "standing", "revoke", standing_id, "--reason", "x", "--json")
    assert (again.status, again.error["code"]) == (2, "APPROVAL_CLOSED")


def test_terms_are_for_an_approval_that_is_to_stand_and_may(served: tuple[Place, Sidecar]) -> None:
    approval_id = asked(served, "large", "large", amount=1000)
    alone = run(served, "approvals", "approve", approval_id, "--for", "2h", "--json")
    assert (alone.status, alone.error["code"]) == (2, "USAGE")
    refused = run(served, "approvals", "approve", approval_id, "--standing", "--json")
    assert (refused.status, refused.error["code"]) == (2, "APPROVAL_NOT_ALLOWED")
    assert "each" in refused.error["message"]
    approved = run(served, "approvals", "approve", approval_id, "--json").json
    assert (approved["state"], approved["decisions"][0]["standing_id"]) == ("approved", "")


def test_an_approval_is_made_to_stand_on_the_live_screen(served: tuple[Place, Sidecar]) -> None:
    for each in run(served, "approvals", "list", "--json").json["approvals"]:
        run(served, "approvals", "withdraw", each["approval_id"])
    with screen(served) as (shows, press):
        shows("0 calls waiting")
        with called(served, "seen") as (results, _):
            shows('"line": "seen"')
            press("s")
            shows("For how long")
            press("30m\n")
            shows("For how many calls")
            press("1\n")
            shows("Where")
            press("/line=~^seen\n")
            shows("stands")
        assert not results[0].is_error
    assert not outcome(served, "seen again", "again").is_error
    asked(served, "seen thrice", "thrice")


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("/path=~^/srv/", {"pointer": "/path", "pattern": "^/srv/"}),
        ("/amount<=1e2", {"pointer": "/amount", "max": 100.0}),
        ("/a~1b/*>=-5", {"pointer": "/a~1b/*", "min": -5.0}),
        ("/to=DE12", {"pointer": "/to", "one_of_json": ['"DE12"']}),
        ("/n=5", {"pointer": "/n", "one_of_json": ["5"]}),
        ('/n="5"', {"pointer": "/n", "one_of_json": ['"5"']}),
        ('/n="~x"', {"pointer": "/n", "one_of_json": ['"~x"']}),
        ("/n=NaN", {"pointer": "/n", "one_of_json": ['"NaN"']}),
        ("/n=null", {"pointer": "/n", "one_of_json": ['"null"']}),
        ("/on=true", {"pointer": "/on", "one_of_json": ["true"]}),
        ("/q=a=b", {"pointer": "/q", "one_of_json": ['"a=b"']}),
    ],
)
def test_a_test_of_arguments_is_read_as_it_is_typed(text: str, made: dict[str, Any]) -> None:
    expected = apb.ArgumentCondition(**made)
    assert condition(text) == expected
    assert condition(condition_text(expected)) == expected


@pytest.mark.parametrize("text", ["", "/x", "x=1", "/x<1", "/x<=many", "/x=", "~^x"])
def test_what_is_no_test_of_arguments_is_refused(text: str) -> None:
    with pytest.raises(CommandError):
        condition(text)
