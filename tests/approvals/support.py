"""A sidecar whose one tool writes lines, and needs an approval for that."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import grpc
from fumehood.v1 import approval_service_pb2 as apb
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.approval_service_pb2_grpc import ApprovalServiceStub
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.sidecar import Sidecar, running_sidecar, write_plugin

CODE = """
from pathlib import Path
from fumehood_sdk import Plugin

plugin = Plugin("diary", version="1.0.0")


@plugin.tool(side_effects="write", isolation="process")
def note(folder: str, line: str, amount: int = 0) -> int:
    \"\"\"Adds a line, and says how many there are.\"\"\"
    path = Path(folder) / "diary"
    with path.open("a") as file:
        file.write(line + "\\n")
    return len(path.read_text().splitlines())
"""
BOUND_S = 60.0
APPROVE, DENY, WITHDRAW = (
    apb.APPROVAL_CHOICE_APPROVE,
    apb.APPROVAL_CHOICE_DENY,
    apb.APPROVAL_CHOICE_WITHDRAW,
)


class Place:
    """Where sidecars run one after another, or beside one another."""

    def __init__(self, folder: Path, name: str = "plugin") -> None:
        self.folder = folder
        self.diary = folder / "notes"
        self.diary.mkdir(mode=0o777, exist_ok=True)
        self.diary.chmod(0o777)
        self.code = folder / name
        self.plugin = write_plugin(self.code, "diary", CODE)

    def sidecar(self, more: str = "", at: Path | None = None, **settings: Any) -> AbstractContextManager[Sidecar]:
        grants = f'max_side_effects = "write"\nwrite = ["{self.diary}"]\n'
        return running_sidecar([(self.plugin, grants)], more=more, at=at or self.folder, **settings)

    def lines(self) -> list[str]:
        path = self.diary / "diary"
        return path.read_text().splitlines() if path.exists() else []

    def call(self, line: str, call_id: str = "", *, at_once: bool = False, amount: int = 0) -> pb.CallToolRequest:
        return pb.CallToolRequest(
            tool="note",
            arguments_json=self.arguments(line, amount),
            call_id=call_id,
            return_if_approval_required=at_once,
        )

    def arguments(self, line: str, amount: int = 0) -> str:
        return json.dumps({"folder": str(self.diary), "line": line, "amount": amount})


class Client:
    """Calls tools and decides about calls."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.tools: Any = ToolServiceStub(channel)
        self.plugins: Any = PluginServiceStub(channel)
        self.approvals: Any = ApprovalServiceStub(channel)

    async def call(self, request: pb.CallToolRequest) -> tool_pb2.ToolResult:
        result: tool_pb2.ToolResult = (await self.tools.CallTool(request, timeout=BOUND_S)).result
        return result

    async def list(self, approval_id: str = "") -> list[apb.Approval]:
        answer = await self.approvals.ListApprovals(apb.ListApprovalsRequest(approval_id=approval_id, page_size=1000))
        return list(answer.approvals)

    async def one(self) -> apb.Approval:
        """The one that is open, once there is one."""
        async for each in self.watch():
            if each.HasField("approval"):
                return each.approval
        raise AssertionError

    async def pending(self, call_id: str, *, but: apb.Approval | None = None) -> apb.Approval:
        """The approval that a call waits for, after another one if that is given."""
        async for each in self.watch():
            found = each.approval
            is_pending = found.call_id == call_id and found.state == apb.APPROVAL_STATE_PENDING
            if is_pending and (but is None or found.approval_id != but.approval_id):
                return found
        raise AssertionError

    async def until(self, approval_id: str, state: apb.ApprovalState.ValueType) -> apb.Approval:
        """One, once it is in a state."""
        async with asyncio.timeout(BOUND_S):
            async for each in self.watch():
                if each.is_current:
                    (found,) = await self.list(approval_id)
                    if found.state == state:
                        return found
                if each.approval.approval_id == approval_id and each.approval.state == state:
                    return each.approval
        raise AssertionError

    async def watch(self) -> AsyncIterator[apb.WatchApprovalsResponse]:
        stream = self.approvals.WatchApprovals(apb.WatchApprovalsRequest(), timeout=BOUND_S)
        try:
            async for each in stream:
                yield each
        finally:
            stream.cancel()

    async def decide(
        self, approval: apb.Approval, choice: apb.ApprovalChoice.ValueType = APPROVE, **fields: Any
    ) -> apb.Approval:
        fields = {"digest": approval.digest, **fields}
        request = apb.DecideApprovalRequest(approval_id=approval.approval_id, choice=choice, **fields)
        return (await self.approvals.DecideApproval(request)).approval

    async def stand(self, approval: apb.Approval, *, reason: str = "", **terms: Any) -> str:
        """Approve a call, and calls like it. Returns the standing approval's id."""
        decided = await self.decide(approval, reason=reason, standing=apb.StandingTerms(**terms))
        return decided.decisions[-1].standing_id

    async def standing(self, standing_id: str = "", **fields: Any) -> list[apb.StandingApproval]:
        request = apb.ListStandingApprovalsRequest(standing_id=standing_id, **fields)
        return list((await self.approvals.ListStandingApprovals(request)).standing_approvals)

    async def revoke(self, standing_id: str, reason: str = "") -> apb.StandingApproval:
        request = apb.RevokeStandingApprovalRequest(standing_id=standing_id, reason=reason)
        return (await self.approvals.RevokeStandingApproval(request)).standing_approval

    async def asked(self, request: pb.CallToolRequest) -> apb.Approval:
        """The approval that a call asks for which is answered at once."""
        result = await self.call(request)
        assert result.error.code == "TOOL_APPROVAL_REQUIRED", result.error
        (found,) = await self.list(json.loads(result.error.details_json)["approval_id"])
        return found


class _Shown(Client):
    """The same, that shows a token."""

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        super().__init__(channel)
        for name in ("tools", "approvals", "plugins"):
            setattr(self, name, _WithToken(getattr(self, name), token))


class _WithToken:
    def __init__(self, stub: object, token: str) -> None:
        self._stub = stub
        self._metadata = (("authorization", f"Bearer {token}"),)

    def __getattr__(self, name: str) -> Any:
        return functools.partial(getattr(self._stub, name), metadata=self._metadata)


@contextlib.asynccontextmanager
async def client_of(sidecar: Sidecar, target: str = "", token: str = "") -> AsyncIterator[Client]:
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(target or sidecar.target, options=options) as channel:
        yield _Shown(channel, token) if token else Client(channel)


def reason_in(result: tool_pb2.ToolResult) -> str:
    return str(json.loads(result.error.details_json).get("reason", ""))
