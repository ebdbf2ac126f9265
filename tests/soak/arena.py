"""What one attack has: where to go, how long, and the count of how its calls ended."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from tests.rpc.support import call

CALL_TIMEOUT_S = 60.0
NO_CONNECTION = "! UNAVAILABLE, the address is full"
"""gRPC closes a connection above `max_connections` before a request is read: the client's own library says this."""

TOO_MANY_PENDING = "! CANCELLED without a reason: CANCELLED"
"""gRPC cancels a request where 8,192 of its address wait already."""

PAST_DEADLINE = "! DEADLINE_EXCEEDED, by the caller's own library"
"""It ends a call at its deadline whether or not the sidecar has answered."""

WITHOUT_REASON = frozenset({NO_CONNECTION, TOO_MANY_PENDING, PAST_DEADLINE})
"""What gRPC itself says, where all attacks together come to it: docs/operations.md names what it refuses."""

_NO_CONNECTION_DETAILS = "failed to connect to all addresses"
_Answer = TypeVar("_Answer")
_OWN_POOL = [("grpc.use_local_subchannel_pool", 1)]


@dataclass(slots=True)
class Arena:
    """For one attack, in a process of its own."""

    public: str
    """Where everybody gets in."""
    private: str
    """Where the caller that behaves well gets in, and newcomers."""
    seconds: float
    web: socket.socket | None = None
    """A listening socket that tools may fetch from."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """How often each outcome was met. One that begins with "!" is none that the protocol promises."""
    began: float = field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float:
        """How long the attack still goes on."""
        return max(self.seconds - (time.monotonic() - self.began), 0.0)

    def channel(self, target: str = "") -> grpc.aio.Channel:
        """A connection of its own."""
        return grpc.aio.insecure_channel(target or self.public, options=_OWN_POOL)

    async def call(self, channel: grpc.aio.Channel, tool: str, arguments: dict[str, Any] | None = None) -> Any:
        """Call a tool, and count how that ended. Returns its result, or None."""
        return await self.call_text(channel, tool, call(tool, arguments).arguments_json)

    async def call_text(self, channel: grpc.aio.Channel, tool: str, arguments_json: str) -> Any:
        """The same with arguments that need not be JSON."""
        request = call(tool)
        request.arguments_json = arguments_json
        answer = await self.counted(self.tools(channel).CallTool(request, timeout=CALL_TIMEOUT_S))
        if answer is None:
            return None
        self.outcomes[answer.result.error.code or "ok"] += 1
        return answer.result

    async def counted(self, answer: Awaitable[_Answer]) -> _Answer | None:
        """The answer, or None where it was refused, which is counted: by its reason, or as one without any."""
        try:
            return await answer
        except grpc.aio.AioRpcError as error:
            self.outcomes[reason_of(error)] += 1
            return None

    async def repeat(self, action: Callable[[], Awaitable[object]], *, lanes: int = 1) -> None:
        """Do something again and again until the time is up, in several lanes."""

        async def lane() -> None:
            while self.left_s:
                await action()

        await asyncio.gather(*(lane() for _ in range(lanes)))

    async def sleep_until_end(self) -> None:
        """Let the attack last."""
        await asyncio.sleep(self.left_s)

    def tools(self, channel: grpc.aio.Channel) -> Any:
        """`ToolService`."""
        return ToolServiceStub(channel)

    def plugins(self, channel: grpc.aio.Channel) -> Any:
        """`PluginService`."""
        return PluginServiceStub(channel)


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """Why a call was refused; it begins with "!" where that isn't told as the protocol promises."""
    trailing: Any = error.trailing_metadata()  # the stubs' type of it is not iterable
    packed = dict(trailing or ()).get("grpc-status-details-bin")
    status, info = Status(), ErrorInfo()
    if isinstance(packed, bytes) and status.ParseFromString(packed) and status.details[0].Unpack(info):
        return f"refused: {info.reason}"
    if error.code() is grpc.StatusCode.UNAVAILABLE and (error.details() or "").startswith(_NO_CONNECTION_DETAILS):
        return NO_CONNECTION
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return PAST_DEADLINE
    return f"! {error.code().name} without a reason: {error.details()}"
