"""Hooks of two sidecars that share a PostgreSQL: each asks its own, and the one record has what was said."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fumehood.v1 import approval_service_pb2 as apb
from fumehood.v1 import hook_service_pb2 as hpb
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.approval_service_pb2_grpc import ApprovalServiceStub
from fumehood_server.config.config import Database
from fumehood_server.journal.encoding import decode
from fumehood_server.journal.keys import public_keys
from fumehood_server.journal.place import DatabasePlace
from fumehood_server.journal.verify import verify

from tests.hooks.support import BOUND_S, CODE, Client, allow, arguments, client_of, deny, details
from tests.postgresql import PostgresServer
from tests.sidecar import Sidecar, running_sidecar, write_plugin

HOOKS = """
[journal]
store = "{url}"
[[hook]]
name = "look"
stages = ["before", "after"]
timeout_s = 60
"""


class Pair:
    """Two sidecars, and what their journal has."""

    def __init__(self, folder: Path, url: str, one: Sidecar, other: Sidecar) -> None:
        self.notes = folder / "notes"
        self.one, self.other = one, other
        self.place = DatabasePlace(Database(url))

    def events(self, call_id: str) -> list[dict[str, Any]]:
        with contextlib.closing(self.place.open_reader()) as reader:
            return [decode(each.body) for each in reader.events_of_call(call_id)]

    async def decided(self, call_id: str, count: int) -> list[dict[str, Any]]:
        """What hooks have said, once so much is recorded: a call without effects is answered before that."""
        async with asyncio.timeout(BOUND_S):
            while True:
                found = [each["data"] for each in self.events(call_id) if each["type"] == "hook_decided"]
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.01)


@pytest.fixture
def pair(postgres_server: PostgresServer) -> Iterator[Pair]:
    url = postgres_server.new_database()
    with tempfile.TemporaryDirectory(prefix="fh-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "notes").mkdir()
        (folder / "notes").chmod(0o777)
        plugin = write_plugin(folder / "plugin", "house", CODE)
        grants = f'max_side_effects = "write"\nwrite = ["{folder / "notes"}"]\n'
        found = []
        for each in ("a", "b"):
            (folder / each).mkdir()
            sidecar = running_sidecar([(plugin, grants)], more=HOOKS.format(url=url), at=folder / each)
            found.append(stack.enter_context(sidecar))
        yield Pair(folder, url, *found)


async def at_once(client: Client, pair: Pair, call_id: str) -> tool_pb2.ToolResult:
    text = json.dumps({"folder": str(pair.notes), "line": call_id})
    request = pb.CallToolRequest(tool="note", arguments_json=text, call_id=call_id, return_if_approval_required=True)
    found: tool_pb2.ToolResult = (await client.tools.CallTool(request, timeout=BOUND_S)).result
    return found


async def test_each_sidecar_asks_the_hooks_that_are_connected_to_it(pair: Pair) -> None:
    async with client_of(pair.one) as one, client_of(pair.other) as other, one.serving("look", allow):
        assert not (await one.call("show", "here", text="x")).is_error
        gone = await other.call("show", "there", text="x")
        assert details(gone)["reason"] == "hook_gone"
        # Its id stands for the call at both, and nobody is asked about its record.
        assert (await one.call("show", "there", text="x")).error.code == gone.error.code
        async with other.serving("look", allow):
            assert not (await other.call("show", "here", text="x")).is_error
    assert [each["choice"] for each in await pair.decided("here", 2)] == ["allow", "allow"]
    assert [(each["choice"], each["reason"]) for each in await pair.decided("there", 1)] == [("gone", "not_connected")]


async def test_a_call_that_comes_again_to_another_sidecar_is_asked_about_there_and_recorded_once(pair: Pair) -> None:
    async with (
        client_of(pair.one) as one,
        client_of(pair.other) as other,
        one.serving("look", arguments("by one", line="changed")) as first,
        other.serving("look", arguments("by the other", line="changed")) as second,
    ):
        asks = await at_once(one, pair, "again")
        assert asks.error.code == "TOOL_APPROVAL_REQUIRED"
        async with pair.other.channel() as channel:
            approvals: Any = ApprovalServiceStub(channel)
            (open_one,) = (await approvals.ListApprovals(apb.ListApprovalsRequest())).approvals
            assert json.loads(open_one.arguments_json)["line"] == "changed"
            request = apb.DecideApprovalRequest(
                approval_id=open_one.approval_id, choice=apb.APPROVAL_CHOICE_APPROVE, digest=open_one.digest
            )
            await approvals.DecideApproval(request)
        assert not (await at_once(other, pair, "again")).is_error
        assert (len(first.asked), len(second.asked)) == (1, 2)
        assert not (await at_once(one, pair, "again")).is_error, "from the record"
    assert (pair.notes / "diary").read_text() == "changed\n"
    said = [(each["stage"], each["choice"], each["reason"]) for each in await pair.decided("again", 2)]
    assert said == [("before", "change", "by the other"), ("after", "allow", "")]
    kinds = [each["type"] for each in pair.events("again")]
    assert kinds.index("execute_start") < kinds.index("hook_decided")


async def test_words_that_no_column_of_text_takes_are_recorded_and_verified(pair: Pair) -> None:
    odd = "nul \0 and \x1b[2J and \u202e"
    async with client_of(pair.one) as one:
        async with one.serving("look", deny(odd)):
            assert details(await one.call("show", "odd", text="a\0b"))["reason"] == "hook_denied"
        changed = hpb.HookAnswer(change_arguments=hpb.HookChangeArguments(arguments_json='{"text":"\\ud800\\u0000"}'))
        async with one.serving("look", lambda asked: allow(asked) if asked.HasField("result") else changed):
            await one.call("show", "surrogate", text="x")
    (denied,) = await pair.decided("odd", 1)
    assert denied["reason"] == odd
    assert (await pair.decided("surrogate", 1))[0]["choice"] in {"change", "refused"}
    with contextlib.closing(pair.place.open_reader()) as reader:
        keys = [*public_keys(pair.one.folder / ".fumehood"), *public_keys(pair.other.folder / ".fumehood")]
        assert verify(reader, keys).fault is None
