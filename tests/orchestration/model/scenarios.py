"""What is asked of a model that is there or answers from its cassette: the sidecar of examples/agent, and runs."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
from fumehood.v1 import approval_service_pb2 as approval_pb
from fumehood.v1 import approval_service_pb2_grpc as approval_grpc
from fumehood.v1 import orchestration_service_pb2 as pb

from tests.orchestration.runs.bench import asked, runs_of
from tests.sidecar import Sidecar, running_sidecar

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
CASSETTES = Path(__file__).with_name("cassettes")
RUN_TIMEOUT_S = 900.0
"""Of a model on two processors that have other work as well."""
ENGINE = """
temperature = 0.1
max_tokens = 300
timeout_s = 600
constrains = ["schema"]
"""

NOTE = asked(
    'What do the files say about the sash? Search for "sash", add a note that quotes what you found, and then answer.',
    request_id="note",
    allowed_tools=["search_files", "add_note"],
    continue_if_disconnected=True,
)
NOTE.messages.insert(
    0,
    pb.Message(
        role=pb.MESSAGE_ROLE_SYSTEM, text="You answer questions about a folder of files. Use the tools, one at a time."
    ),
)

PARTS_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "parts": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 5},
    },
    "required": ["name", "parts"],
    "additionalProperties": False,
}
PARTS = asked(
    "Name the cabinet and its parts: A fume hood is a cabinet with a sash at the front and a fan at the back.",
    request_id="parts",
    mode=pb.MODE_STRUCTURED,
    no_tools=True,
    output=pb.OutputContract(schema_json=json.dumps(PARTS_SCHEMA), strict=True),
)


@contextlib.contextmanager
def agent_sidecar(engine: str, folder: Path, at: Path | None = None) -> Iterator[Sidecar]:
    """A sidecar with the plugins and grants of examples/agent, its notes in `folder`, and the `[[engine]]` given."""
    folder.chmod(0o777)
    plugins = [
        (EXAMPLES / "plugins/files", f"read = [{json.dumps(str(EXAMPLES / 'data'))}]"),
        (EXAMPLES / "agent/notes", f'max_side_effects = "write"\nwrite = [{json.dumps(str(folder))}]'),
    ]
    with running_sidecar(plugins, more=f"{engine}\n[orchestration]\ntimeout_s = {RUN_TIMEOUT_S}", at=at) as sidecar:
        yield sidecar


async def run_until_noted(sidecar: Sidecar, killed: Callable[[], None]) -> None:
    """Start `NOTE`, approve its note, and kill the sidecar while the model is asked what comes after it."""
    noted = found = False
    async with sidecar.channel() as channel, runs_of(sidecar) as stub:
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for event in _stream(stub, NOTE):
                if event.HasField("approval_awaited"):
                    await _approve(channel, event.approval_awaited.approval_id)
                noted |= event.HasField("tool_finished") and event.tool_finished.tool == "add_note"
                if noted and event.HasField("inference_started"):
                    found = True
                    killed()
                    sidecar.signal(signal.SIGKILL)
                    sidecar.wait()
    assert found, "the model noted nothing"


async def run_to_its_end(sidecar: Sidecar, request: pb.SystemRequest) -> list[pb.StreamRunResponse]:
    """Its events. A note is approved."""
    events = []
    async with sidecar.channel() as channel, runs_of(sidecar) as stub:
        async for event in _stream(stub, request):
            events.append(event)
            if event.HasField("approval_awaited"):
                await _approve(channel, event.approval_awaited.approval_id)
    return events


def assert_noted_once(events: list[pb.StreamRunResponse], folder: Path) -> None:
    """The run went on from its record, and what it did before the kill was not done again."""
    response = events[-1].finished
    assert (response.state, response.error.code) == ("COMPLETE", "")
    assert events[0].started.resumed
    calls = [each.tool for each in response.tool_calls_made if not each.HasField("error")]
    assert "search_files" in calls
    lines = (folder / "notes.txt").read_text().splitlines()
    assert len(lines) == calls.count("add_note") == 1
    assert "sash" in lines[0]
    assert "sash" in response.content


def save_cassette(name: str, **parts: Any) -> None:
    """Write it anew. Refused: what tells of the machine that it was recorded on."""
    text = json.dumps(parts, indent=1, ensure_ascii=False) + "\n"
    assert str(ROOT) not in text, "the model named a path of this machine: record again"
    CASSETTES.mkdir(exist_ok=True)
    (CASSETTES / f"{name}.json").write_text(text, encoding="utf-8")


def load_cassette(name: str) -> dict[str, Any]:
    """As it was saved."""
    found: dict[str, Any] = json.loads((CASSETTES / f"{name}.json").read_text(encoding="utf-8"))
    return found


async def _stream(stub: Any, request: pb.SystemRequest) -> AsyncIterator[pb.StreamRunResponse]:
    async for event in stub.StreamRun(pb.StreamRunRequest(request=request), timeout=RUN_TIMEOUT_S):
        yield event


async def _approve(channel: grpc.aio.Channel, approval_id: str) -> None:
    stub = approval_grpc.ApprovalServiceStub(channel)
    found = (await stub.ListApprovals(approval_pb.ListApprovalsRequest(), timeout=RUN_TIMEOUT_S)).approvals
    (approval,) = [each for each in found if each.approval_id == approval_id]
    decision = approval_pb.DecideApprovalRequest(
        approval_id=approval_id, choice=approval_pb.APPROVAL_CHOICE_APPROVE, digest=approval.digest, reason="yes"
    )
    await stub.DecideApproval(decision, timeout=RUN_TIMEOUT_S)
