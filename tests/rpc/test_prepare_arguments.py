"""`prepare_arguments`: a plugin turns what callers send into its schema's shape, before anything is validated."""

from __future__ import annotations

import asyncio
import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import approval_service_pb2 as pb_approvals
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.approval_service_pb2_grpc import ApprovalServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.journal.reading import Recorded, data
from tests.rpc.support import reason_of
from tests.sidecar import Sidecar, running_sidecar, write_plugin

CODE = """
import os, socket, time
from pathlib import Path
from fumehood_sdk import Plugin, ToolError

plugin = Plugin("shelf", version="1.0.0")


def tried(what, *args):
    try:
        what(*args)
    except OSError as error:
        return type(error).__name__
    return "done"


def prepare(sent):
    how = sent.get("name", "") if isinstance(sent, dict) else sent
    if how == "raises":
        raise ValueError("a bug")
    if how == "refuses":
        raise ToolError("give a name that is no verb", reason="verb")
    if how == "dies":
        os._exit(3)
    if how == "hangs":
        time.sleep(3600)
    if how == "large":
        return {"name": "x" * 2_000_000, "size_bytes": 1}
    if how == "other":
        return [1, 2]
    if how == "looks":
        read = tried(os.listdir, sent["folder"])
        return sent | {"name": f"{read} {tried(socket.socket)}", "size_bytes": 0}
    made = dict(sent)
    if "path" in made:
        made["name"] = made.pop("path")
    if "size" in made:
        number, unit = str(made.pop("size")).split()
        made["size_bytes"] = int(number) * {"B": 1, "KiB": 1024}[unit]
    return made


@plugin.tool(side_effects="write", idempotent=True, prepare_arguments=prepare)
def put(folder: str, name: str, size_bytes: int) -> str:
    \"\"\"Puts a file there.\"\"\"
    with (Path(folder) / "put").open("a") as file:
        file.write(f"{name} {size_bytes}\\n")
    return f"{name} {size_bytes} {len(os.listdir(folder))}"


@plugin.tool(side_effects="write", prepare_arguments=prepare)
def ask(folder: str, name: str, size_bytes: int) -> str:
    \"\"\"Asks first.\"\"\"
    return name


@plugin.tool(side_effects="none", isolation="process", sequential=True, prepare_arguments=prepare)
async def warm(name: str, size_bytes: int) -> str:
    \"\"\"Asynchronous, and one at a time.\"\"\"
    return f"{name} {size_bytes}"
"""
BOUND_S = 30


class Place:
    def __init__(self, folder: Path, sidecar: Sidecar) -> None:
        self.sidecar = sidecar
        self.things = folder / "things"
        self.recorded = Recorded(folder)

    def call(self, tool: str = "put", /, call_id: str = "", **sent: Any) -> pb.CallToolRequest:
        arguments = sent if tool == "warm" else {"folder": str(self.things)} | sent
        return pb.CallToolRequest(tool=tool, arguments_json=json.dumps(arguments), call_id=call_id)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "things").mkdir(mode=0o777)
        (folder / "things").chmod(0o777)
        plugin = write_plugin(folder / "plugin", "shelf", CODE)
        lines = f'max_side_effects = "write"\nwrite = ["{folder}/things"]\n[plugin.tools.put]\npermission = "allow"\n'
        with running_sidecar([(plugin, lines)], at=folder) as sidecar:
            yield Place(folder, sidecar)


async def test_what_a_model_sends_becomes_the_schemas_shape_and_both_are_recorded(place: Place) -> None:
    async with place.sidecar.channel() as channel:
        stub: Any = ToolServiceStub(channel)
        sent = place.call(call_id="units", path="a", size="2 KiB")
        results = [(await stub.CallTool(sent, timeout=BOUND_S)).result for _ in range(2)]
        assert [each.details_json for each in results] == ['"a 2048 1"'] * 2
        assert (place.things / "put").read_text() == "a 2048\n"  # the repetition was answered from the record
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.CallTool(place.call(call_id="units", path="b", size="2 KiB"))
        assert reason_of(caught.value) == "CALL_ID_IN_USE"

        plain = (await stub.CallTool(place.call(name="b", size_bytes="3"), timeout=BOUND_S)).result
        assert plain.details_json == '"b 3 1"'
        assert [each.pointer for each in plain.coercions] == ["/size_bytes"]  # what it makes is coerced as any other
        warm = [stub.CallTool(place.call("warm", name=str(n), size="1 B"), timeout=BOUND_S) for n in range(4)]
        answers = await asyncio.gather(*warm)
        assert [each.result.details_json for each in answers] == [f'"{n} 1"' for n in range(4)]
        tool = (await stub.GetTool(pb.GetToolRequest(name="put"))).tool
        assert tool.definition.prepares_arguments
    (start,) = data(place.recorded.call("units"), "execute_start")
    made = {"folder": str(place.things), "name": "a", "size_bytes": 2048}
    assert start["arguments_hash"] == _canonical_hash(made)
    assert start["asked_hash"] == _canonical_hash(json.loads(sent.arguments_json))


async def test_it_runs_without_the_tools_grants(place: Place) -> None:
    async with place.sidecar.channel() as channel:
        stub: Any = ToolServiceStub(channel)
        result = (await stub.CallTool(place.call(name="looks"), timeout=BOUND_S)).result
        assert result.details_json.startswith('"FileNotFoundError PermissionError 0'), result
        assert result.details_json.endswith(' 1"')  # the tool itself may read what it was granted


@pytest.mark.parametrize(
    ("how", "said", "cause"),
    [
        ("raises", "a bug", "TOOL_EXECUTION_FAILED"),
        ("refuses", "give a name that is no verb", "TOOL_EXECUTION_FAILED"),
        ("dies", "", "TOOL_UNAVAILABLE"),
        ("large", "2,000,", ""),
    ],
)
async def test_a_failure_ends_the_call_before_it_runs_and_names_what_failed(
    place: Place, how: str, said: str, cause: str
) -> None:
    async with place.sidecar.channel() as channel:
        stub: Any = ToolServiceStub(channel)
        result = (await stub.CallTool(place.call(name=how, size_bytes=1), timeout=BOUND_S)).result
        assert (result.error.code, result.attempts) == ("TOOL_EXECUTION_FAILED", 0)
        assert json.loads(result.error.details_json) == {"reason": "prepare_arguments_failed", "plugin": "shelf"}
        assert said in result.error.message
        assert result.error.caused_by.code == cause


async def test_what_it_makes_is_validated_and_it_is_held_to_the_calls_time(place: Place) -> None:
    async with place.sidecar.channel() as channel:
        stub: Any = ToolServiceStub(channel)
        other = (await stub.CallTool(place.call(name="other"), timeout=BOUND_S)).result
        assert json.loads(other.error.details_json)["reason"] == "invalid_arguments"
        text = (await stub.CallTool(pb.CallToolRequest(tool="put", arguments_json="{"), timeout=BOUND_S)).result
        assert [each["rule"] for each in json.loads(text.error.details_json)["arguments"]] == ["json"]
        late = place.call(name="hangs")
        late.timeout.FromMilliseconds(500)
        result = (await stub.CallTool(late, timeout=BOUND_S)).result
        assert (result.error.code, json.loads(result.error.details_json)["bound"]) == ("TOOL_TIMEOUT", "request")
        assert (await stub.CallTool(place.call(name="c", size="1 B"), timeout=BOUND_S)).result.attempts == 1


async def test_an_approval_is_of_what_it_made(place: Place) -> None:
    async with place.sidecar.channel() as channel:
        stub: Any = ToolServiceStub(channel)
        approvals: Any = ApprovalServiceStub(channel)
        call = place.call("ask", call_id="asked", path="a", size="1 KiB")
        call.return_if_approval_required = True
        waits = (await stub.CallTool(call, timeout=BOUND_S)).result
        approval_id = json.loads(waits.error.details_json)["approval_id"]
        (shown,) = (await approvals.ListApprovals(pb_approvals.ListApprovalsRequest())).approvals
        made = {"folder": str(place.things), "name": "a", "size_bytes": 1024}
        assert json.loads(shown.arguments_json) == made
        await approvals.DecideApproval(
            pb_approvals.DecideApprovalRequest(
                approval_id=approval_id, choice=pb_approvals.APPROVAL_CHOICE_APPROVE, digest=shown.digest
            )
        )
        assert (await stub.CallTool(call, timeout=BOUND_S)).result.details_json == '"a"'


def _canonical_hash(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
