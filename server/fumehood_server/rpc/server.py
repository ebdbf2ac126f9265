"""The gRPC servers: their services, an address each, their end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from fumehood_server.callers import Authenticator
from fumehood_server.config.listen import Listen, SocketAccess
from fumehood_server.config.mcp import McpConfig
from fumehood_server.model.plugin import PluginState
from fumehood_server.model.worker import CancelReason
from fumehood_server.rpc import approval_service, journal_service
from fumehood_server.rpc.approval_service import ApprovalService
from fumehood_server.rpc.authentication import AuthenticatedHandlers, RefusalLog
from fumehood_server.rpc.hang_up import keep_hang_ups_from_log
from fumehood_server.rpc.health import HealthService
from fumehood_server.rpc.hook_service import HookService
from fumehood_server.rpc.journal_service import JournalService
from fumehood_server.rpc.mcp_service import McpService
from fumehood_server.rpc.observed import ObservedHandlers
from fumehood_server.rpc.orchestration_service import OrchestrationService
from fumehood_server.rpc.plugin_messages import live_state
from fumehood_server.rpc.plugin_service import PluginService
from fumehood_server.rpc.reading import Service
from fumehood_server.rpc.reflection import reflection_services
from fumehood_server.rpc.server_context import ServerContext
from fumehood_server.rpc.sockets import ListenFailedError, bind_problem, claimed, open_to, private_umask
from fumehood_server.rpc.tls import ServedCertificates
from fumehood_server.rpc.tool_service import ToolService
from fumehood_server.rpc.unread import OPEN_BOUNDS

READ_GRACE_S = 0.1
"""How long the last answers lie in the sockets before those are closed: a client whose own write meets a closed socket
drops what it has not read."""

ANSWER_GRACE_S = 5.0
"""After the last call: time for its answer to be written. Only a reader that does not read takes so long."""

CANCEL_GRACE_S = 10.0
"""For calls that were cancelled by the drain: above the steps of ending a worker."""

_MESSAGE_OVERHEAD_BYTES = 64 * 1024
_STREAM_WINDOW_BYTES = 65_535
"""What gRPC takes of a request before its handler reads it (HTTP/2's first flow-control window). Left alone it is
4 MiB for each of a connection's streams."""

_HANDSHAKE_TIMEOUT_MS = 10_000
"""For a new connection to say that it speaks HTTP/2."""

_KEEPALIVE_TIMEOUT_MS = 20_000
"""For a client to answer that it is still there. One that is asked more often has as long as lies in between."""

_MIN_CLIENT_PING_MS = 10_000
_MAX_STREAMS = 4096
"""Of one connection. gRPC refuses what is more as a bare UNAVAILABLE where a client asks before it has read this."""

_MAX_PENDING_REQUESTS = 8_192
"""Requests of one address that wait until the event loop takes them, where admission answers or refuses them: each may
be here with `_STREAM_WINDOW_BYTES`. gRPC ends those above as a bare CANCELLED, whoever sent them; left alone, some from
1,000 on and all from 3,000 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """What holds for every connection."""

    max_arguments_bytes: int
    keepalive_s: int
    """A client that says nothing for so long is asked whether it is there; its calls are cancelled where it does not
    answer."""
    max_connections: int
    """Of each address. gRPC counts them for each by itself, and closes what is more at once."""
    idle_s: int
    """A connection that has had no request for so long is closed."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that serves."""

    targets: tuple[str, ...]
    """The addresses as gRPC writes them, with the ports that the kernel chose."""
    context: ServerContext
    health: HealthService

    def reloaded(self) -> None:
        """Tools, rules or what else the sidecar reads may have changed: tell who waits for that."""
        _tell_of_reload(self.context, self.health)

    async def drain(self, grace_s: float) -> None:
        """Refuse new calls, give those under way `grace_s`, then cancel the rest and wait for their outcomes."""
        self.health.drain()
        self.context.orchestrator.suspend()
        self.context.executor.close_admission()
        self.context.drain.begin()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._idle()
                return
        self.context.orchestrator.cancel_all()
        self.context.executor.cancel_all(CancelReason.SHUTDOWN)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_GRACE_S):
                await self._idle()

    async def _idle(self) -> None:
        await self.context.orchestrator.idle()
        await self.context.executor.idle()


@contextlib.asynccontextmanager
async def serving(
    context: ServerContext,
    *,
    listen: Sequence[Listen],
    socket_access: SocketAccess,
    reflect: bool,
    settings: ConnectionSettings,
    allow_anonymous: bool,
    certificates: ServedCertificates | None = None,
    mcp: McpConfig | None = None,
    mcp_serves: Callable[[], bool | None] = lambda: None,
) -> AsyncIterator[Serving]:
    """Serve within the block. Leaving it closes every stream after `ANSWER_GRACE_S`.

    `mcp` has one more address, by which the sidecar's own MCP server calls; `mcp_serves` says whether that takes
    requests. None: there is none.

    With `certificates` TCP is TLS. `allow_anonymous`: whether TCP on loopback takes callers that nothing is known of.

    Each address has a gRPC server of its own: one takes its requests one by one, in the order in which they came, so
    that thousands that wait at one address would keep those at another waiting.

    Raises:
        ListenFailedError: an address can't be had.
    """
    keep_hang_ups_from_log()
    of_journal = frozenset({journal_service.SERVICE, approval_service.SERVICE})
    health = HealthService(
        _plugin_serves(context),
        lambda: context.journal.problem is None,
        context.drain,
        never=frozenset() if context.journal_reads is not None else of_journal,
        mcp_serves=mcp_serves,
    )
    services: tuple[Service, ...] = (
        ToolService(context).service(),
        PluginService(context, on_change=functools.partial(_tell_of_reload, context, health)).service(),
        JournalService(context).service(),
        ApprovalService(context).service(),
        HookService(context).service(),
        OrchestrationService(context).service(),
        McpService(context).service(),
    )
    names = tuple(each.name for each in services)
    health.serve(names)
    # Open to everybody: orchestrators that ask whether it lives have no token.
    open_service = health.service(context.unread.apart(OPEN_BOUNDS))
    if reflect:
        services = (*services, *reflection_services(context, (*names, open_service.name)))
    log = RefusalLog(context.refusals)

    def authenticated(each: Service, address: Listen) -> grpc.GenericRpcHandler[Any, Any]:
        of_mcp = mcp is not None and address is mcp.socket
        if mcp is not None and of_mcp:
            authenticator = Authenticator.of_mcp(
                context.callers, context.tokens, address, allow_anonymous=mcp.allow_anonymous
            )
        else:
            authenticator = Authenticator(context.callers, context.tokens, address, allow_anonymous=allow_anonymous)
        shown = address.path is None and certificates is not None and certificates.asks_callers
        wrapped = AuthenticatedHandlers(
            each.handlers(), authenticator, context.callers, log, certificates=shown, of_mcp=of_mcp
        )
        return wrapped if context.metrics is None else ObservedHandlers(wrapped, context.metrics)

    def make_server(address: Listen) -> grpc.aio.Server:
        server = grpc.aio.server(options=_options(settings))
        server.add_generic_rpc_handlers((*(authenticated(each, address) for each in services), open_service.handlers()))
        return server

    with contextlib.ExitStack() as stack:
        servers = [make_server(each) for each in listen]
        targets = tuple(_bind(*each, socket_access, certificates, stack) for each in zip(servers, listen, strict=True))
        if mcp is not None:
            servers.append(make_server(mcp.socket))
            _bind(servers[-1], mcp.socket, SocketAccess(), None, stack)
        for server in servers:
            await server.start()
        try:
            yield Serving(targets, context, health)
        finally:
            context.drain.begin()
            context.drain.end()
            await asyncio.shield(_stop(servers))


def _tell_of_reload(context: ServerContext, health: HealthService) -> None:
    health.changed()
    if context.approvals is not None:
        context.approvals.look_again()


async def _stop(servers: Sequence[grpc.aio.Server]) -> None:
    await asyncio.sleep(READ_GRACE_S)
    await asyncio.gather(*(server.stop(ANSWER_GRACE_S) for server in servers))


def _bind(
    server: grpc.aio.Server,
    listen: Listen,
    access: SocketAccess,
    certificates: ServedCertificates | None,
    sockets: contextlib.ExitStack,
) -> str:
    if listen.path is not None:
        sockets.enter_context(claimed(listen.path, access))
    try:
        with private_umask():
            if listen.path is not None or certificates is None:
                port = server.add_insecure_port(listen.target)
            else:
                port = server.add_secure_port(listen.target, certificates.credentials())
    except RuntimeError as exc:
        raise ListenFailedError(listen.target, *bind_problem(listen)) from exc
    if listen.path is not None:
        open_to(listen.path, access)
    return Listen(host=listen.host, port=port).target if listen.path is None else listen.target


def _options(settings: ConnectionSettings) -> list[tuple[str, int]]:
    keepalive_ms = settings.keepalive_s * 1000
    timeout_ms = min(_KEEPALIVE_TIMEOUT_MS, keepalive_ms)
    return [
        # Above the cap on arguments, so that slightly too long ones are refused in words. JSON in a string field
        # takes as many bytes as the text.
        ("grpc.max_receive_message_length", 2 * settings.max_arguments_bytes + _MESSAGE_OVERHEAD_BYTES),
        # The cap on results is the tool's own.
        ("grpc.max_send_message_length", -1),
        # Two sidecars on one port would share its callers in silence.
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", keepalive_ms),
        # The first bounds what the network acknowledges (TCP_USER_TIMEOUT), the second the client's own answer, which
        # gRPC otherwise awaits for a minute whatever the first says.
        ("grpc.keepalive_timeout_ms", timeout_ms),
        ("grpc.http2.ping_timeout_ms", timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _MIN_CLIENT_PING_MS),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        ("grpc.max_connection_idle_ms", settings.idle_s * 1000),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIMEOUT_MS),
        ("grpc.max_concurrent_streams", _MAX_STREAMS),
        # Its estimate of the bandwidth would widen the window.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", _STREAM_WINDOW_BYTES),
        ("grpc.server.max_pending_requests", _MAX_PENDING_REQUESTS),
        ("grpc.server.max_pending_requests_hard_limit", _MAX_PENDING_REQUESTS),
    ]


def _plugin_serves(context: ServerContext) -> Callable[[str], bool | None]:
    def serves(name: str) -> bool | None:
        plugin = context.catalog.plugin(name)
        if plugin is None:
            return None
        state, _ = live_state(context, plugin, context.catalog.scan())
        return state is PluginState.SERVING

    return serves
