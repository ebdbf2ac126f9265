"""The MCP server itself: the official SDK's low-level server, with a handler for each method that is served.

One object serves every transport, in both eras of the protocol: the handshake of 2025-11-25 and before, and the
stateless requests of 2026-07-28.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.metadata import version
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    EmptyResult,
    GetPromptRequestParams,
    InputRequiredResult,
    NotificationParams,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ServerCapabilities,
    SetLevelRequestParams,
    SubscriptionFilter,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)

from fumehood_server.mcp.call_events import APPROVING
from fumehood_server.mcp.callers import McpCaller
from fumehood_server.mcp.log_levels import LogLevels, session_id
from fumehood_server.mcp.parameter_headers import ParameterHeaders
from fumehood_server.mcp.places import NoPlaceError, Places
from fumehood_server.mcp.reading_list import LISTINGS, Listing
from fumehood_server.mcp.readings import Readings
from fumehood_server.mcp.results import REFUSED, Json, protocol_error
from fumehood_server.mcp.sidecar_link import SidecarLink, SidecarRefusedError
from fumehood_server.mcp.tool_calls import ToolCalls
from fumehood_server.mcp.tool_changes import ToolChanges
from fumehood_server.mcp.tool_choice import ToolChoice
from fumehood_server.mcp.tool_list import ToolList

NAME = "fumehood"
TITLE = "Fumehood"

MAX_REQUESTS = 1024
"""Calls and listings under way at a time, where nobody names another number."""

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

    def get_capabilities(self, *args: Any, **options: Any) -> ServerCapabilities:  # noqa: ANN401 - the SDK's own
        """See the SDK, which takes streams that tell of changed tools for streams that tell of everything."""
        found = super().get_capabilities(*args, **options)
        if found.prompts is not None:
            found.prompts.list_changed = False
        if found.resources is not None:
            found.resources.list_changed = found.resources.subscribe = False
        return found


class McpDoor:
    """Handlers, and what they share. For one event loop; `running` owns what goes on beside requests."""

    __slots__ = (
        "_calls",
        "_changes",
        "_headers",
        "_levels",
        "_link",
        "_places",
        "_readings",
        "_sessions",
        "caller_of",
        "server",
        "tools",
    )

    def __init__(
        self,
        link: SidecarLink,
        choice: ToolChoice,
        caller_of: CallerOf,
        *,
        max_requests: int = MAX_REQUESTS,
        approving: str = APPROVING,
    ) -> None:
        """`caller_of` says on whose behalf a request comes, `approving` how a call is approved by somebody else.

        `max_requests` are under way at a time. A transport's own bound doesn't do: through 2025-11-25 a call goes on
        when its HTTP request has ended.
        """
        self._link = link
        self._levels = LogLevels()
        self.tools = ToolList(link, choice)
        self._headers = ParameterHeaders(self.tools)
        self._calls = ToolCalls(link, self.tools, self._levels, approving)
        self._readings = Readings(link, choice)
        self._changes = ToolChanges(self.tools)
        self._places = Places(max_requests)
        self._sessions: set[str] = set()
        """Sessions of the handshake's era that are told of changes."""
        self.caller_of = caller_of
        self.server = _SdkServer(
            NAME,
            title=TITLE,
            version=version("fumehood-server"),
            on_subscriptions_listen=self._listen,
            get_tool_input_schema=lambda _name: None,  # `_headers` compares: this has no caller, and can't wait
        )
        # Not by the constructor, which takes models alone: results are JSON already, and go through the SDK's checks.
        self.server.add_request_handler("tools/list", PaginatedRequestParams, self._list_tools)
        self.server.add_request_handler("tools/call", CallToolRequestParams, self._call_tool)
        for method, listing in LISTINGS.items():
            self.server.add_request_handler(method, PaginatedRequestParams, functools.partial(self._list, listing))
        self.server.add_request_handler("resources/read", ReadResourceRequestParams, self._read_resource)
        self.server.add_request_handler("prompts/get", GetPromptRequestParams, self._get_prompt)
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
        caller = self.caller_of(context)
        try:
            with self._place_of(caller):
                tools, following = await self.tools.page(params.cursor, caller)
        except SidecarRefusedError as error:
            raise protocol_error(error) from error
        # Nobody else's, and not for long: rules may change it at any time.
        answer: Json = {"resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "private"}
        return {**answer, "nextCursor": following} if following else answer

    async def _call_tool(self, context: _Context, params: CallToolRequestParams) -> Json | InputRequiredResult:
        caller = self.caller_of(context)
        with self._place_of(caller):
            try:
                await self._headers.check(context, params, caller)
            except SidecarRefusedError as error:
                raise protocol_error(error) from error
            return await self._calls.answer(context, params, caller)

    @contextlib.contextmanager
    def _place_of(self, caller: McpCaller) -> Iterator[None]:
        try:
            with self._places.taken(caller.share):
                yield
        except UnicodeEncodeError as error:  # JSON can write half a surrogate pair, and UTF-8 can't
            raise MCPError(INVALID_PARAMS, "a text of the request is no Unicode") from error
        except RecursionError as error:  # the SDK has parsed it, with fewer frames below
            raise MCPError(INVALID_PARAMS, "the request is nested too deeply") from error
        except NoPlaceError as error:
            data = {"code": "TOO_MANY_REQUESTS", "retryable": True}
            raise MCPError(REFUSED, "too many requests of this caller are under way: back off", data) from error

    async def _list(self, listing: Listing, context: _Context, params: PaginatedRequestParams) -> Json:
        caller = self.caller_of(context)
        with self._place_of(caller):
            return await self._readings.page(listing, params.cursor, context, caller)

    async def _read_resource(self, context: _Context, params: ReadResourceRequestParams) -> Json:
        caller = self.caller_of(context)
        with self._place_of(caller):
            return await self._readings.resource(params.uri, context, caller)

    async def _get_prompt(self, context: _Context, params: GetPromptRequestParams) -> Json:
        caller = self.caller_of(context)
        with self._place_of(caller):
            return await self._readings.prompt(params.name, params.arguments or {}, context, caller)

    async def _set_level(self, context: _Context, params: SetLevelRequestParams) -> EmptyResult:
        self._levels.set(context, params.level)
        return EmptyResult()

    async def _listen(self, context: _Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """`subscriptions/listen` (2026-07-28): a stream that tells of changes until the client leaves."""
        bus = InMemorySubscriptionBus()
        changed = asyncio.Event()
        async with self._changes.listening(self.caller_of(context), changed.set), asyncio.TaskGroup() as tasks:

            async def publish() -> None:
                while True:
                    await changed.wait()
                    changed.clear()
                    await bus.publish(ToolsListChanged())

            publishing = tasks.create_task(publish())
            # The handler acknowledges all that is asked for, and nothing but changed tools is told of here.
            told = SubscriptionFilter(tools_list_changed=params.notifications.tools_list_changed)
            try:
                return await ListenHandler(bus)(context, params.model_copy(update={"notifications": told}))
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
            async with self._changes.listening(self.caller_of(context), changed.set):
                while True:
                    await changed.wait()
                    changed.clear()
                    await context.session.send_tool_list_changed()
        finally:
            self._sessions.discard(session)
            self._levels.forget(session)
