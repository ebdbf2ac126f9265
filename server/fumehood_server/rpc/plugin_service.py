"""`fumehood.v1.PluginService`."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, TypeVar

import grpc
from fumehood.v1 import plugin_service_pb2 as pb

from fumehood_server.errors import ConfigError, Refusal, RefusalReason, RefusedError
from fumehood_server.model.events import About
from fumehood_server.model.operation_events import PluginDisabled, PluginEnabled
from fumehood_server.model.plugin import RegisteredPlugin
from fumehood_server.model.text import printable
from fumehood_server.plugins.disabled import Disabled
from fumehood_server.rpc.authentication import asking
from fumehood_server.rpc.hang_up import hang_ups_end_it
from fumehood_server.rpc.plugin_messages import log_line, plugin_detail, plugin_summary
from fumehood_server.rpc.reading import Service
from fumehood_server.rpc.stream_slots import StreamSlots

if TYPE_CHECKING:
    from collections.abc import Callable

    from fumehood_server.rpc.server_context import ServerContext
    from fumehood_server.workers.output.logs import LogLine

SERVICE = pb.DESCRIPTOR.services_by_name["PluginService"].full_name

DEFAULT_LINES = 100
MAX_CHANGES = 200
"""Settings that a comparison names: more than somebody reads."""
MAX_LINES = 1000

MAX_FOLLOWERS = 64
"""Of the log of one plugin: each line is written to each of them."""

MAX_FOLLOWERS_OF_CONNECTION = 16

MAX_REASON_BYTES = 1024
"""Of why a plugin is disabled: each caller of its tools is told."""

MAX_RELOADS = 16
"""Of the configuration, at a time, and of plugins. They run one after the other, and each reads files."""
MAX_RELOADS_OF_CONNECTION = 4
"""Of plugins: an operator's reload of the configuration has its turn after those that came before it."""

_Request = TypeVar("_Request")
_Context = grpc.aio.ServicerContext[_Request, bytes]


class PluginService:
    """The methods. Each returns or writes serialised messages, or raises RefusedError."""

    def __init__(self, server: ServerContext, *, on_change: Callable[[], None]) -> None:
        """`on_change` is called after a plugin was read again."""
        self._server = server
        self._on_change = on_change
        self._tails: dict[str, StreamSlots] = {}
        self._reloads = StreamSlots("reloads of plugins", total=MAX_RELOADS, connection=MAX_RELOADS_OF_CONNECTION)
        self._config_reloads = StreamSlots("reloads of the configuration", total=MAX_RELOADS, connection=MAX_RELOADS)

    def service(self) -> Service:
        """The service, with what its requests may hold."""
        reader = self._server.reader
        methods = {
            "ListPlugins": reader.unary(self.list_plugins, pb.ListPluginsRequest),
            "GetPlugin": reader.unary(self.get_plugin, pb.GetPluginRequest),
            "ReloadPlugin": reader.unary(self.reload_plugin, pb.ReloadPluginRequest, waits=True),
            "DisablePlugin": reader.unary(self.disable_plugin, pb.DisablePluginRequest, waits=True),
            "EnablePlugin": reader.unary(self.enable_plugin, pb.EnablePluginRequest, waits=True),
            "ReloadConfig": reader.unary(self.reload_config, pb.ReloadConfigRequest),
            "CompareConfig": reader.unary(self.compare_config, pb.CompareConfigRequest),
            "TailPluginLogs": reader.streaming(self.tail_plugin_logs, pb.TailPluginLogsRequest),
        }
        return Service(SERVICE, methods)

    async def list_plugins(self, _request: pb.ListPluginsRequest, _context: _Context[pb.ListPluginsRequest]) -> bytes:
        """See plugin_service.proto, as for every method."""
        await self._server.catalog.look_for_programs()
        scan = self._server.catalog.scan()
        plugins = [plugin_summary(self._server, plugin, scan) for plugin in self._server.catalog.plugins]
        return pb.ListPluginsResponse(plugins=plugins).SerializeToString()

    async def get_plugin(self, request: pb.GetPluginRequest, _context: _Context[pb.GetPluginRequest]) -> bytes:
        """One plugin with everything."""
        await self._server.catalog.look_for_programs()
        scan = self._server.catalog.scan()
        plugin = self._find(request.name)
        return pb.GetPluginResponse(plugin=plugin_detail(self._server, plugin, scan)).SerializeToString()

    async def reload_plugin(self, request: pb.ReloadPluginRequest, context: _Context[pb.ReloadPluginRequest]) -> bytes:
        """Read a plugin again."""
        server = self._server
        with self._reloads.take(context.peer()):
            try:
                reloaded = await server.catalog.reload(_required(request.name))
                await server.pools.retire(reloaded.unused)
            except ConfigError as exc:
                raise RefusedError(Refusal(RefusalReason.RELOAD_REFUSED, str(exc))) from None
        self._on_change()
        scan = server.catalog.scan()
        plugin = self._find(reloaded.plugin.name)
        return pb.ReloadPluginResponse(plugin=plugin_detail(server, plugin, scan)).SerializeToString()

    async def disable_plugin(
        self, request: pb.DisablePluginRequest, _context: _Context[pb.DisablePluginRequest]
    ) -> bytes:
        """Take a plugin out of service. First nothing new runs, then what runs ends, then a restart would know."""
        if len(request.reason.encode()) > MAX_REASON_BYTES:
            raise RefusedError(
                Refusal(RefusalReason.REQUEST_INVALID, f"reason is longer than {MAX_REASON_BYTES} bytes")
            )
        server, caller = self._server, asking().admitted
        reason = printable(request.reason)
        disabled = Disabled(by=caller.recorded, reason=reason, since=int(time.time()))
        found = server.catalog.disable(_required(request.name), disabled)
        await server.pools.retire(found.unused)
        tools = {tool.name for tool in found.plugin.callable_tools}
        cancelled = server.executor.cancel_tools(tools, reason, caller.recorded) if request.cancel_calls else 0
        server.journal.record(
            PluginDisabled(
                by=caller.recorded,
                authenticated_by=caller.authenticated_by.value,
                reason=reason,
                cancelled_calls=cancelled,
            ),
            About(plugin=found.plugin.name),
        )
        self._on_change()
        await server.catalog.save_disabled()
        plugin = plugin_detail(server, found.plugin, server.catalog.scan())
        return pb.DisablePluginResponse(plugin=plugin, cancelled_calls=cancelled).SerializeToString()

    async def enable_plugin(self, request: pb.EnablePluginRequest, _context: _Context[pb.EnablePluginRequest]) -> bytes:
        """Put a plugin back into service."""
        server, caller = self._server, asking().admitted
        plugin = server.catalog.enable(_required(request.name))
        server.journal.record(
            PluginEnabled(by=caller.recorded, authenticated_by=caller.authenticated_by.value), About(plugin=plugin.name)
        )
        self._on_change()
        await server.catalog.save_disabled()
        detail = plugin_detail(server, plugin, server.catalog.scan())
        return pb.EnablePluginResponse(plugin=detail).SerializeToString()

    async def reload_config(self, _request: pb.ReloadConfigRequest, context: _Context[pb.ReloadConfigRequest]) -> bytes:
        """Take up the configuration."""
        with self._config_reloads.take(context.peer()):
            try:
                reloaded = await self._server.reload_config()
            except RefusedError as exc:
                caller = asking().admitted.recorded
                self._server.refusals.about_call("ReloadConfig", exc.refusal, "", caller)
                raise
        self._on_change()
        return pb.ReloadConfigResponse(
            added_plugins=reloaded.added,
            removed_plugins=reloaded.removed,
            changed_plugins=reloaded.changed,
            changed_keys=reloaded.keys,
            notes=reloaded.notes,
        ).SerializeToString()

    async def compare_config(
        self, _request: pb.CompareConfigRequest, context: _Context[pb.CompareConfigRequest]
    ) -> bytes:
        """Say what a reload would change."""
        with self._config_reloads.take(context.peer()):
            found = await self._server.compare_config()
        changes = found.differences[:MAX_CHANGES]
        return pb.CompareConfigResponse(
            changes=[pb.ConfigChange(plugin_path=each.plugin, key=each.key) for each in changes],
            truncated=len(found.differences) > MAX_CHANGES,
            restart_keys=found.restart_keys,
        ).SerializeToString()

    async def tail_plugin_logs(
        self, request: pb.TailPluginLogsRequest, context: _Context[pb.TailPluginLogsRequest]
    ) -> None:
        """The last lines of a plugin's log, then new ones."""
        name = self._find(request.name).name
        if request.lines > MAX_LINES:
            raise RefusedError(Refusal(RefusalReason.REQUEST_INVALID, f"at most {MAX_LINES} lines"))
        with hang_ups_end_it(), self._followers(name).take(context.peer()):
            await self._server.drain.until_end(self._tail(name, request, context))

    async def _tail(
        self, name: str, request: pb.TailPluginLogsRequest, context: _Context[pb.TailPluginLogsRequest]
    ) -> None:
        log = self._server.logs.of(name)
        new_lines = log.subscribe()
        turn = self._server.pacer.turn
        for line in log.last(request.lines or DEFAULT_LINES):
            await turn()
            await context.write(_serialised(line))
        if request.follow:
            caller = asking()
            async for line in new_lines:
                await turn()
                caller.still()
                await context.write(_serialised(line))

    def _followers(self, plugin: str) -> StreamSlots:
        found = self._tails.get(plugin)
        if found is None:
            name = f"followers of the log of {plugin}"
            found = self._tails[plugin] = StreamSlots(name, total=MAX_FOLLOWERS, connection=MAX_FOLLOWERS_OF_CONNECTION)
        return found

    def _find(self, name: str) -> RegisteredPlugin:
        plugin = self._server.catalog.plugin(_required(name))
        if plugin is None:
            raise RefusedError(Refusal(RefusalReason.PLUGIN_NOT_FOUND, f'there is no plugin "{name[:128]}"'))
        return plugin


@functools.lru_cache(maxsize=256)
def _serialised(line: LogLine) -> bytes:
    """The line as every follower gets it."""
    return log_line(line).SerializeToString()


def _required(name: str) -> str:
    if not name:
        raise RefusedError(Refusal(RefusalReason.REQUEST_INVALID, "name is required"))
    return name
