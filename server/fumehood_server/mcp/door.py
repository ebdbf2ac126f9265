"""The MCP server itself: the official SDK's low-level server, with a handler for each method that is served.

One object serves every transport, in both eras of the protocol: the handshake of 2025-11-25 and before, and the
stateless requests of 2026-07-28.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from importlib.metadata import version
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequestParams,
    EmptyResult,
    InputRequiredResult,
    NotificationParams,
    PaginatedRequestParams,
    SetLevelRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)

from fumehood_server.mcp.callers import McpCaller
from fumehood_server.mcp.log_levels import LogLevels, session_id
from fumehood_server.mcp.results import Json, protocol_error
from fumehood_server.mcp.sidecar_link import SidecarLink, SidecarRefusedError
from fumehood_server.mcp.tool_calls import ToolCalls
from fumehood_server.mcp.tool_changes import ToolChanges
from fumehood_server.mcp.tool_choice import ToolChoice
from fumehood_server.mcp.tool_list import ToolList

NAME = "fumehood"
TITLE = "Fumehood"

MAX_LISTENERS = 1024
"""Streams and sessions that are told of changes at a time."""

_Context = ServerRequestContext[Any, Any]
CallerOf = Callable[[_Context], McpCaller]


class _SdkServer(Server[Any]):
    """The SDK's server, which announces `listChanged` on every transport."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """See the SDK."""
        told = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(told, experimental_capabilities, extensions)


class McpDoor:
    """Handlers, and what they share. For one event loop; `running` owns what goes on beside requests."""

    __slots__ = ("_calls", "_changes", "_levels", "_link", "_listeners", "_sessions", "caller_of", "server", "tools")

    def __init__(self, link: SidecarLink, choice: ToolChoice, caller_of: CallerOf) -> None:
        """`caller_of` says on whose behalf a request comes."""
        self._link = link
        self._levels = LogLevels()
        self.tools = ToolList(link, choice)
        self._calls = ToolCalls(link, self.tools, self._levels)
        self._changes = ToolChanges(self.tools)
        self._listeners = 0
        self._sessions: set[str] = set()
        """Sessions of the handshake's era that are told of changes."""
        self.caller_of = caller_of
        self.server = _SdkServer(
            NAME,
            title=TITLE,
            version=version("fumehood-server"),
            on_subscriptions_listen=self._listen,
            get_tool_input_schema=self._header_schema,
        )
        # Not by the constructor, which takes models alone: results are JSON already, and go through the SDK's checks.
        self.server.add_request_handler("tools/list", PaginatedRequestParams, self._list_tools)
        self.server.add_request_handler("tools/call", CallToolRequestParams, self._call_tool)
        self.server.middleware.clear()  # a span for each request, which nothing collects here
        self.server.add_request_handler("logging/setLevel", SetLevelRequestParams, self._set_level)
        self.server.add_notification_handler("notifications/initialized", NotificationParams, self._initialized)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look for changes of the tools within the block."""
        async with asyncio.TaskGroup() as tasks:
            polling = tasks.create_task(self._changes.run())
            try:
                yield
            finally:
                polling.cancel()

    async def _list_tools(self, context: _Context, params: PaginatedRequestParams) -> Json:
        try:
            tools, following = await self.tools.page(params.cursor, self.caller_of(context))
        except SidecarRefusedError as error:
            raise protocol_error(error) from error
        # Nobody else's, and not for long: rules may change it at any time.
        answer: Json = {"resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "private"}
        return {**answer, "nextCursor": following} if following else answer

    async def _call_tool(self, context: _Context, params: CallToolRequestParams) -> Json | InputRequiredResult:
        return await self._calls.answer(context, params, self.caller_of(context))

    async def _set_level(self, context: _Context, params: SetLevelRequestParams) -> EmptyResult:
        self._levels.set(context, params.level)
        return EmptyResult()

    async def _listen(self, context: _Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """`subscriptions/listen` (2026-07-28): a stream that tells of changes until the client leaves."""
        bus = InMemorySubscriptionBus()
        changed = asyncio.Event()
        async with self._told_of_changes(context, changed.set), asyncio.TaskGroup() as tasks:

            async def publish() -> None:
                while True:
                    await changed.wait()
                    changed.clear()
                    await bus.publish(ToolsListChanged())

            publishing = tasks.create_task(publish())
            try:
                return await ListenHandler(bus)(context, params)
            finally:
                publishing.cancel()

    async def _initialized(self, context: _Context, _params: NotificationParams) -> None:
        """`notifications/initialized`, through 2025-11-25: tell the session of changes as long as it lives.

        The SDK runs this as a task of the session, which ends with it.
        """
        session = session_id(context)
        if session in self._sessions:
            return
        changed = asyncio.Event()
        self._sessions.add(session)
        try:
            async with self._told_of_changes(context, changed.set):
                while True:
                    await changed.wait()
                    changed.clear()
                    await context.session.send_tool_list_changed()
        finally:
            self._sessions.discard(session)

    @contextlib.asynccontextmanager
    async def _told_of_changes(self, context: _Context, listener: Callable[[], None]) -> AsyncIterator[None]:
        if self._listeners >= MAX_LISTENERS:
            raise MCPError(-32000, f"{MAX_LISTENERS} clients are told of changes, the most that there may be")
        self._listeners += 1
        try:
            async with self._changes.listening(self.caller_of(context), listener):
                yield
        finally:
            self._listeners -= 1

    def _header_schema(self, name: str) -> Mapping[str, Any] | None:
        return self.tools.header_schema(name)
