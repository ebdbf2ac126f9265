"""The calls under way on an MCP server, by invocation and by request, and which of them a server's request is for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fumehood_sdk.adapters.mcp.client_requests import RefusedInput
from fumehood_sdk.adapters.mcp.connection import ServerConnection
from fumehood_sdk.adapters.mcp.messages import Message
from fumehood_sdk.adapters.mcp.remote import REQUEST_KEY
from fumehood_sdk.adapters.mcp.results import convert_answer
from fumehood_sdk.wire.plugin_frames import Failure, Sent


class McpCall:
    """A call under way."""

    __slots__ = (
        "asked",
        "cancel_reason",
        "convert",
        "fields",
        "give_up_at",
        "invocation_id",
        "kept_update",
        "method",
        "request_id",
        "rounds",
        "trace",
        "updated_at",
    )

    def __init__(
        self,
        invocation_id: int,
        fields: bytes,
        trace: bytes,
        method: str = "tools/call",
        convert: Callable[[Message], Sent | Failure] = convert_answer,
    ) -> None:
        self.invocation_id = invocation_id
        self.fields = fields
        """Members of the request's parameters, each before a comma, such as name and arguments."""
        self.trace = trace
        """Members of the `_meta` of each of its requests, each after a comma."""
        self.method = method
        self.convert = convert
        self.request_id = 0
        """Of the request that its server has yet to answer. 0: there is none."""
        self.asked: list[dict[str, Any]] = []
        """What the server asked of its client for it, and was refused."""
        self.rounds = 0
        self.updated_at = -math.inf
        self.kept_update = b""
        """The newest update that came too soon after another one, as a frame."""
        self.cancel_reason = ""
        self.give_up_at = math.inf

    def cancelled(self) -> Failure:
        """What is said of it once it is."""
        return Failure(f"the call was cancelled ({self.cancel_reason})", "cancelled")


class Calls:
    """Those of one process. For one thread."""

    __slots__ = ("_by_invocation", "_by_request", "_connection", "_is_alone", "_is_remote")

    def __init__(self, connection: ServerConnection, *, is_remote: bool) -> None:
        """None is under way. `is_remote`: over HTTP, where a request comes by the stream of the call that it is for."""
        self._connection = connection
        self._is_remote = is_remote
        self._by_invocation: dict[int, McpCall] = {}
        self._by_request: dict[int, McpCall] = {}
        self._is_alone = False
        """Whether the only call has had the server to itself since it began."""

    def __len__(self) -> int:
        return len(self._by_invocation)

    def __contains__(self, call: McpCall) -> bool:
        return self._by_invocation.get(call.invocation_id) is call

    def of_invocation(self, invocation_id: int) -> McpCall | None:
        """The call that the sidecar knows by this number."""
        return self._by_invocation.get(invocation_id)

    def of_request(self, request_id: object) -> McpCall | None:
        """The call that waits for the answer to a request."""
        return self._by_request.get(request_id) if type(request_id) is int else None

    def begin(self, call: McpCall) -> None:
        """A call is under way from now on."""
        self._is_alone = not self._by_invocation and not self._connection.has_abandoned
        self._by_invocation[call.invocation_id] = call

    def has_sent(self, call: McpCall, request_id: int) -> None:
        """The call waits for the answer to this request."""
        call.request_id = request_id
        self._by_request[request_id] = call

    def has_answer(self, call: McpCall) -> None:
        """It waits no more."""
        self._by_request.pop(call.request_id, None)
        call.request_id = 0

    def give_up(self, call: McpCall) -> None:
        """Its server has not answered it, and may still be at work on it."""
        self._connection.abandon(call.request_id, is_call=True)
        self.has_answer(call)

    def end(self, call: McpCall) -> bool:
        """It is over. Whether it was under way."""
        return self._by_invocation.pop(call.invocation_id, None) is not None

    def asker(self, message: Message) -> McpCall | RefusedInput:
        """The call that a request of the server's is for (up to 2025-11-25), or why nobody can tell.

        On stdio a request doesn't say it. It is for the only call, unless others were there beside that, or one before
        it was given up: the request may be late, and for one of those.
        """
        if self._is_remote:
            request_id = message.get(REQUEST_KEY)
            if request_id is None:
                return RefusedInput(
                    "call_unknown",
                    "it came by a resumed stream, with other calls beside or one before that was not answered, and "
                    'doesn\'t say which one it is for: "concurrency = 1" in plugin.toml parts them',
                )
            return self.of_request(request_id) or RefusedInput("call_unknown", "no such call is under way")
        only = next(iter(self._by_invocation.values()), None)
        if only is None:
            return RefusedInput("call_unknown", "no such call is under way")
        if self._is_alone:
            return only
        if self._connection.has_abandoned:
            return RefusedInput(
                "call_unknown",
                "the MCP server has not answered a call that was cancelled, and doesn't say whether it asks for that "
                'one: "isolation = "call"" in plugin.toml parts them',
            )
        return RefusedInput(
            "call_unknown",
            'several calls have been under way, and it doesn\'t say which one it is for: "concurrency = 1" in '
            "plugin.toml parts them",
        )
