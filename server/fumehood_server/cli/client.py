"""Blocking gRPC client of the sidecar, for the commands. Errors are `CommandError`s with a remedy."""

from __future__ import annotations

import functools
import json
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc
from fumehood.v1 import approval_service_pb2 as approval_pb
from fumehood.v1 import approval_service_pb2_grpc as approval_grpc
from fumehood.v1 import hook_service_pb2 as hook_pb
from fumehood.v1 import hook_service_pb2_grpc as hook_grpc
from fumehood.v1 import journal_service_pb2 as journal_pb
from fumehood.v1 import journal_service_pb2_grpc as journal_grpc
from fumehood.v1 import mcp_service_pb2 as mcp_pb
from fumehood.v1 import mcp_service_pb2_grpc as mcp_grpc
from fumehood.v1 import orchestration_service_pb2 as run_pb
from fumehood.v1 import orchestration_service_pb2_grpc as run_grpc
from fumehood.v1 import plugin_service_pb2 as plugin_pb
from fumehood.v1 import plugin_service_pb2_grpc as plugin_grpc
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1 import tool_service_pb2_grpc as tool_grpc

from fumehood_server.cli.address import resolve_address
from fumehood_server.cli.channel import open_channel
from fumehood_server.cli.credentials import Credentials, credentials
from fumehood_server.cli.statuses import decode_status, forbidden, unreachable
from fumehood_server.cli.threaded_stream import answer_by_thread, read_by_thread
from fumehood_server.model.tool import MAX_TIMEOUT_S

if TYPE_CHECKING:
    from types import TracebackType

    from fumehood_server.cli.json_output import JsonObject

CONNECT_TIMEOUT_S = 5.0
"""A sidecar of this machine answers within milliseconds; this is for one that is starting under load."""

LOOKUP_TIMEOUT_S = 30.0
"""Listing is quick, but the first listing after a start may wait for plugins to be described."""

RELOAD_TIMEOUT_S = 120.0
"""A reload starts the plugin and waits for the calls that are under way on its old workers."""

CANCEL_TIMEOUT_S = 5.0
"""Whoever leaves does not wait long for a sidecar that is away."""

REPLY_SLACK_S = 5.0
"""How much later than the call's own timeout the gRPC deadline is, so that the typed result comes first."""

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""gRPC's own 4 MiB is too little for a page of tools with large schemas."""

_KEEPALIVE = [
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Of gRPC's own pings, which measure the bandwidth: while one has no answer, none for keepalive is sent. Else 60 s.
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
]
"""Pings while something is asked: a network may be gone without a word. A sidecar takes one every 10 s."""

_PAGE_SIZE = 1000

_T = TypeVar("_T")


class SidecarClient:
    """A connection to one sidecar. Every method raises `CommandError` when it can't give an answer."""

    def __init__(
        self, address: str | None = None, *, connect_timeout_s: float = CONNECT_TIMEOUT_S, shows_token: bool = True
    ) -> None:
        """`address` as it was given; None looks it up (see `resolve_address`).

        `shows_token`: whether it shows what the command was given of who calls. A sidecar of the command's own, which
        names no callers, would refuse that.
        """
        self.target = resolve_address(address)
        self._connect_timeout_s = connect_timeout_s
        options = [
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.enable_http_proxy", 0),  # a proxy for the web is none for a socket of this machine
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 2_000),
        ]
        if not self.target.startswith("unix:"):
            options += _KEEPALIVE
        self._channel, channel = open_channel(self.target, options, credentials() if shows_token else Credentials())
        self._tools = tool_grpc.ToolServiceStub(channel)
        self._plugins = plugin_grpc.PluginServiceStub(channel)
        self._journal = journal_grpc.JournalServiceStub(channel)
        self._approvals = approval_grpc.ApprovalServiceStub(channel)
        self._hooks = hook_grpc.HookServiceStub(channel)
        self._runs = run_grpc.OrchestrationServiceStub(channel)
        self._mcp = mcp_grpc.McpServiceStub(channel)

    def __enter__(self) -> Self:
        """Connect.

        Raises:
            CommandError: nothing listens there.
        """
        try:
            self._connect()
        except BaseException:
            self._channel.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection. Calls under way are cancelled."""
        self._channel.close()

    def _connect(self) -> None:
        """Check by connect(2) that something listens: gRPC would retry, and watching its channel costs 200 ms."""
        try:
            if self.target.startswith("unix:"):
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                    probe.settimeout(self._connect_timeout_s)
                    probe.connect(self.target.removeprefix("unix:"))
            else:
                host, _, port = self.target.rpartition(":")
                socket.create_connection((host.strip("[]"), int(port)), timeout=self._connect_timeout_s).close()
        except (FileNotFoundError, ConnectionRefusedError):
            raise unreachable(self.target) from None
        except PermissionError:
            raise forbidden(self.target) from None
        except TimeoutError:
            raise unreachable(self.target, "it does not answer") from None
        except (OSError, OverflowError, UnicodeError) as error:
            raise unreachable(self.target, getattr(error, "strerror", None) or str(error)) from None

    def list_tools(self, *, include_unavailable: bool = False, plugin: str = "") -> list[tool_pb2.Tool]:
        """All tools, ordered by name."""
        tools: list[tool_pb2.Tool] = []
        token = ""
        while True:
            request = pb.ListToolsRequest(
                page_size=_PAGE_SIZE, page_token=token, include_unavailable=include_unavailable, plugin=plugin
            )
            page = self._ask(lambda: self._tools.ListTools(request, timeout=LOOKUP_TIMEOUT_S))  # noqa: B023 - at once
            tools.extend(page.tools)
            token = page.next_page_token
            if not token:
                return tools

    def list_tools_as(
        self,
        tool_format: pb.ToolFormat.ValueType,
        *,
        include_unavailable: bool,
        plugin: str,
        names: Sequence[str],
    ) -> list[JsonObject]:
        """All tools in the shape of a model's API, ordered by name."""
        tools: list[JsonObject] = []
        token = ""
        while True:
            request = pb.ListToolsRequest(
                page_size=_PAGE_SIZE,
                page_token=token,
                include_unavailable=include_unavailable,
                plugin=plugin,
                names=names,
                format=tool_format,
            )
            page = self._ask(lambda: self._tools.ListTools(request, timeout=LOOKUP_TIMEOUT_S))  # noqa: B023 - at once
            tools.extend(json.loads(page.tools_json))
            token = page.next_page_token
            if not token:
                return tools

    def get_tool(self, name: str) -> tool_pb2.Tool:
        """One tool, available or not."""
        request = pb.GetToolRequest(name=name)
        return self._ask(lambda: self._tools.GetTool(request, timeout=LOOKUP_TIMEOUT_S)).tool

    def call_tool(self, request: pb.CallToolRequest) -> tool_pb2.ToolResult:
        """Call and wait. An interrupt cancels the call, and is raised again."""
        begin = functools.partial(self._tools.CallTool.future, request, timeout=deadline_s(request))
        response: pb.CallToolResponse = self._ask(lambda: answer_by_thread(begin))
        return response.result

    def stream_tool(
        self, request: pb.CallToolRequest, *, after_sequence: int, timeout_s: float
    ) -> Iterator[pb.StreamToolResponse]:
        """Call, or join the call, and yield what happens. Leaving the iterator ends the stream."""
        wanted = pb.StreamToolRequest(call=request, after_sequence=after_sequence)
        return self._stream(lambda: self._tools.StreamTool(wanted, timeout=timeout_s))

    def get_call(self, call_id: str, *, timeout_s: float, wait: bool = False) -> pb.GetCallResponse:
        """Where a call stands. Waits that long for a connection and, with `wait`, for its outcome."""
        request = pb.GetCallRequest(call_id=call_id, wait=wait)
        return self._ask(lambda: self._tools.GetCall(request, timeout=timeout_s, wait_for_ready=True))

    def cancel_call(self, call_id: str) -> None:
        """Have a call cancelled. Does not wait for its end."""
        request = pb.CancelCallRequest(call_id=call_id)
        self._ask(lambda: self._tools.CancelCall(request, timeout=CANCEL_TIMEOUT_S))

    def answer_question(self, request: pb.AnswerQuestionRequest) -> None:
        """Answer what a call's tool asks."""
        self._ask(lambda: self._tools.AnswerQuestion(request, timeout=LOOKUP_TIMEOUT_S))

    def call_tools(self, calls: list[pb.CallToolRequest]) -> Iterator[pb.BatchAnswer]:
        """Make a batch of calls and yield the answers in their order. Leaving the iterator cancels the calls."""
        for message in self._stream(lambda: self._tools.CallTools(pb.CallToolsRequest(calls=calls))):
            yield from message.answers

    def stream_run(
        self, request: run_pb.SystemRequest, *, after: int, join_only: bool
    ) -> Iterator[run_pb.StreamRunResponse]:
        """Run, or join the run, and yield what happens after an event. Leaving the iterator ends the stream."""
        wanted = run_pb.StreamRunRequest(request=request, after_sequence=after, join_only=join_only)
        return self._stream(lambda: self._runs.StreamRun(wanted))

    def steer_run(self, request: run_pb.SteerRunRequest) -> None:
        """Give a run further messages."""
        self._ask(lambda: self._runs.SteerRun(request, timeout=LOOKUP_TIMEOUT_S))

    def cancel_run(self, request_id: str, *, resumable: bool, timeout_s: float) -> bool:
        """Stop a run, and wait so long for its end. Whether its request goes on with it when it is sent again."""
        request = run_pb.CancelRunRequest(request_id=request_id, resumable=resumable)
        return self._ask(lambda: self._runs.CancelRun(request, timeout=timeout_s)).resumable

    def list_approvals(self, approval_id: str = "") -> list[approval_pb.Approval]:
        """All that are open, or one."""
        found: list[approval_pb.Approval] = []
        token = ""
        while True:
            request = approval_pb.ListApprovalsRequest(approval_id=approval_id, page_size=_PAGE_SIZE, page_token=token)
            page = self._ask(lambda: self._approvals.ListApprovals(request, timeout=LOOKUP_TIMEOUT_S))  # noqa: B023 - at once
            found.extend(page.approvals)
            token = page.next_page_token
            if not token:
                return found

    def watch_approvals(self) -> Iterator[approval_pb.WatchApprovalsResponse]:
        """Those that are open, and each as it changes, until the caller leaves."""
        return self._stream(lambda: self._approvals.WatchApprovals(approval_pb.WatchApprovalsRequest()))

    def decide_approval(self, request: approval_pb.DecideApprovalRequest) -> approval_pb.Approval:
        """Decide one."""
        return self._ask(lambda: self._approvals.DecideApproval(request, timeout=LOOKUP_TIMEOUT_S)).approval

    def list_standing(
        self, standing_id: str = "", *, include_closed: bool = False
    ) -> list[approval_pb.StandingApproval]:
        """Those that can be used, all, or one."""
        found: list[approval_pb.StandingApproval] = []
        request = approval_pb.ListStandingApprovalsRequest(
            standing_id=standing_id, include_closed=include_closed, page_size=_PAGE_SIZE
        )
        while True:
            page = self._ask(lambda: self._approvals.ListStandingApprovals(request, timeout=LOOKUP_TIMEOUT_S))
            found.extend(page.standing_approvals)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                return found

    def revoke_standing(self, standing_id: str, reason: str) -> approval_pb.StandingApproval:
        """Take one back."""
        request = approval_pb.RevokeStandingApprovalRequest(standing_id=standing_id, reason=reason)
        answer = self._ask(lambda: self._approvals.RevokeStandingApproval(request, timeout=LOOKUP_TIMEOUT_S))
        return answer.standing_approval

    def list_hooks(self) -> list[hook_pb.Hook]:
        """All hooks and middleware, in the order in which calls meet them."""
        return list(
            self._ask(lambda: self._hooks.ListHooks(hook_pb.ListHooksRequest(), timeout=LOOKUP_TIMEOUT_S)).hooks
        )

    def list_mcp_servers(self) -> list[mcp_pb.McpServer]:
        """The hosted MCP servers that may be read, ordered by name."""
        request = mcp_pb.ListMcpServersRequest()
        return list(self._ask(lambda: self._mcp.ListMcpServers(request, timeout=LOOKUP_TIMEOUT_S)).servers)

    def read_mcp(self, method: str, request: Any) -> Any:  # noqa: ANN401 - of any method of McpService that reads
        """Read something of a hosted MCP server. An interrupt cancels the call, and is raised again."""
        future = getattr(self._mcp, method).future
        begin = functools.partial(future, request, timeout=MAX_TIMEOUT_S + REPLY_SLACK_S)
        return self._ask(lambda: answer_by_thread(begin))

    def list_plugins(self) -> list[plugin_pb.Plugin]:
        """All plugins in the order of the configuration."""
        request = plugin_pb.ListPluginsRequest()
        return list(self._ask(lambda: self._plugins.ListPlugins(request, timeout=LOOKUP_TIMEOUT_S)).plugins)

    def get_plugin(self, name: str) -> plugin_pb.Plugin:
        """One plugin with everything."""
        request = plugin_pb.GetPluginRequest(name=name)
        return self._ask(lambda: self._plugins.GetPlugin(request, timeout=LOOKUP_TIMEOUT_S)).plugin

    def reload_plugin(self, name: str) -> plugin_pb.Plugin:
        """Have a plugin's folder read again."""
        request = plugin_pb.ReloadPluginRequest(name=name)
        return self._ask(lambda: self._plugins.ReloadPlugin(request, timeout=RELOAD_TIMEOUT_S)).plugin

    def disable_plugin(self, name: str, reason: str, *, cancel_calls: bool) -> plugin_pb.DisablePluginResponse:
        """Take a plugin out of service."""
        request = plugin_pb.DisablePluginRequest(name=name, reason=reason, cancel_calls=cancel_calls)
        return self._ask(lambda: self._plugins.DisablePlugin(request, timeout=LOOKUP_TIMEOUT_S))

    def enable_plugin(self, name: str) -> plugin_pb.Plugin:
        """Put a plugin back into service."""
        request = plugin_pb.EnablePluginRequest(name=name)
        return self._ask(lambda: self._plugins.EnablePlugin(request, timeout=LOOKUP_TIMEOUT_S)).plugin

    def reload_config(self) -> plugin_pb.ReloadConfigResponse:
        """Have the configuration read again."""
        request = plugin_pb.ReloadConfigRequest()
        return self._ask(lambda: self._plugins.ReloadConfig(request, timeout=RELOAD_TIMEOUT_S))

    def compare_config(self) -> plugin_pb.CompareConfigResponse:
        """What reading the configuration again would change."""
        request = plugin_pb.CompareConfigRequest()
        return self._ask(lambda: self._plugins.CompareConfig(request, timeout=RELOAD_TIMEOUT_S))

    def tail_logs(
        self, name: str, *, lines: int = 0, follow: bool = False
    ) -> Iterator[plugin_pb.TailPluginLogsResponse]:
        """The last lines of a plugin's log and, with `follow`, new ones until the caller leaves."""
        request = plugin_pb.TailPluginLogsRequest(name=name, lines=lines, follow=follow)
        timeout_s = None if follow else LOOKUP_TIMEOUT_S
        return self._stream(lambda: self._plugins.TailPluginLogs(request, timeout=timeout_s))

    def newest_events(
        self, wanted: journal_pb.EventFilter, number: int, *, payloads: bool = False
    ) -> tuple[list[journal_pb.JournalEvent], int]:
        """The newest events that fit, newest first, and the journal's size before which they are."""
        events: list[journal_pb.JournalEvent] = []
        request = journal_pb.ListEventsRequest(
            filter=wanted, page_size=max(number, 1), newest_first=True, include_payloads=payloads
        )
        size = -1
        while True:
            page = self._ask(lambda: self._journal.ListEvents(request, timeout=LOOKUP_TIMEOUT_S))
            size = page.journal_size if size < 0 else size
            events.extend(page.events[: number - len(events)])
            request.page_token = page.next_page_token
            if len(events) >= number or not page.next_page_token:
                return events, size

    def watch_events(self, wanted: journal_pb.EventFilter) -> Iterator[journal_pb.WatchEventsResponse]:
        """Events from a position on, until the caller leaves."""
        return self._stream(lambda: self._journal.WatchEvents(journal_pb.WatchEventsRequest(filter=wanted)))

    def fork_run(self, run: str, position: int) -> journal_pb.ForkRunResponse:
        """A run that goes on from an event of another."""
        request = journal_pb.ForkRunRequest(request_id=run, from_position=position)
        return self._ask(lambda: self._journal.ForkRun(request, timeout=LOOKUP_TIMEOUT_S))

    def _ask(self, ask: Callable[[], _T]) -> _T:
        try:
            return ask()
        except grpc.RpcError as error:
            raise decode_status(error, self.target) from error

    def _stream(self, begin: Callable[[], Any]) -> Iterator[Any]:
        """What the stream that `begin` returns yields. Leaving the iterator cancels it."""
        try:
            yield from read_by_thread(begin)
        except grpc.RpcError as error:
            raise decode_status(error, self.target) from error


def deadline_s(request: pb.CallToolRequest) -> float:
    """Seconds for the whole exchange: the call's own bound, else the longest that any tool may run."""
    own = request.timeout.ToTimedelta().total_seconds() if request.HasField("timeout") else MAX_TIMEOUT_S
    return own + REPLY_SLACK_S
