"""Turns plugins, their workers and their sandboxes into messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fumehood.v1 import plugin_service_pb2 as pb
from fumehood.v1 import tool_pb2
from fumehood_sandbox import Level, Receipt
from google.protobuf.timestamp_pb2 import Timestamp

from fumehood_server.model.plugin import Grants, PluginState, RegisteredPlugin, RegisteredTool, WorkerSpec
from fumehood_server.model.side_effects import SIDE_EFFECTS
from fumehood_server.model.text import printable
from fumehood_server.model.tool import Reason
from fumehood_server.model.worker import WorkerInfo
from fumehood_server.rpc.result_messages import receipt_message
from fumehood_server.rpc.tool_messages import reason_message, tool_message

if TYPE_CHECKING:
    from fumehood_server.plugins.availability import AvailabilityScan
    from fumehood_server.rpc.server_context import ServerContext
    from fumehood_server.workers.output.logs import LogLine

STATES: dict[PluginState, pb.PluginState.ValueType] = {
    PluginState.SERVING: pb.PLUGIN_STATE_SERVING,
    PluginState.UNAVAILABLE: pb.PLUGIN_STATE_UNAVAILABLE,
    PluginState.REFUSED: pb.PLUGIN_STATE_REFUSED,
}


def live_state(
    server: ServerContext, plugin: RegisteredPlugin, scan: AvailabilityScan
) -> tuple[PluginState, tuple[Reason, ...]]:
    """Where a plugin stands now, and why it isn't serving. It serves when one of its tools could run."""
    if plugin.state is PluginState.REFUSED:
        return plugin.state, plugin.reasons
    reasons: dict[Reason, None] = dict.fromkeys(plugin.reasons)
    for tool in plugin.tools or plugin.reads:  # an MCP server may have no tools
        availability = server.catalog.availability(tool, scan)
        if availability.available:
            return PluginState.SERVING, ()
        reasons.update(dict.fromkeys(availability.reasons))
    return PluginState.UNAVAILABLE, tuple(reasons) or (Reason("no_tools", "it declares no tool"),)


def plugin_summary(server: ServerContext, plugin: RegisteredPlugin, scan: AvailabilityScan) -> pb.Plugin:
    """The plugin without its tools, workers and sandboxes."""
    state, reasons = live_state(server, plugin, scan)
    return pb.Plugin(
        name=plugin.name,
        version=plugin.version,
        kind=plugin.kind.value if plugin.kind is not None else "",
        path=printable(plugin.path),
        digest=plugin.digest,
        state=STATES[state],
        reasons=[reason_message(reason) for reason in reasons],
        max_side_effects=SIDE_EFFECTS[plugin.grants.max_side_effects],
        tool_count=len(plugin.tools),
        grants=grants_message(plugin.grants),
    )


def grants_message(grants: Grants) -> pb.PluginGrants:
    """What a plugin is granted, as it is shown."""
    return pb.PluginGrants(
        readable_paths=map(printable, grants.read),
        writable_paths=map(printable, grants.write),
        hosts=grants.hosts,
        denied_hosts=grants.deny_hosts,
        private_addresses=grants.private,
        engines=[grants.engine] if grants.engine else [],
    )


def plugin_detail(server: ServerContext, plugin: RegisteredPlugin, scan: AvailabilityScan) -> pb.Plugin:
    """The plugin with everything."""
    message = plugin_summary(server, plugin, scan)
    message.tools.extend(tool_message(tool, server.catalog.availability(tool, scan)) for tool in plugin.tools)
    workers = [info for info in server.pools.workers() if info.spec.plugin == plugin.name]
    message.workers.extend(_worker(info) for info in workers)
    receipts = {info.spec.key: info.receipt for info in workers if info.receipt is not None}
    message.sandboxes.extend(_sandbox(spec, receipts.get(spec.key)) for spec in _specs(plugin.tools))
    return message


def log_line(line: LogLine) -> pb.TailPluginLogsResponse:
    """One line of a plugin's log."""
    return pb.TailPluginLogsResponse(
        time=_timestamp(line.time),
        source=line.source,
        level=line.level,
        message=line.message,
        worker_id=line.worker_id,
        call_id=line.call_id,
        dropped=line.dropped,
        fields_json=line.fields_json,
    )


def _specs(tools: tuple[RegisteredTool, ...]) -> list[WorkerSpec]:
    """Each spec once, lowest level first."""
    specs = {tool.spec.key: tool.spec for tool in tools if tool.spec is not None}
    order = list(Level)
    return sorted(specs.values(), key=lambda spec: (order.index(spec.policy.level), spec.key))


def _worker(info: WorkerInfo) -> pb.Worker:
    return pb.Worker(
        id=info.worker_id,
        state=info.state.value,
        side_effects=SIDE_EFFECTS[info.spec.policy.level],
        calls_in_flight=info.calls_in_flight,
        calls_served=info.calls_served,
        start_time=_timestamp(info.started_at),
        process_id=info.process_id,
    )


def _sandbox(spec: WorkerSpec, receipt: Receipt | None) -> pb.EffectiveSandbox:
    policy = spec.policy
    return pb.EffectiveSandbox(
        side_effects=SIDE_EFFECTS[policy.level],
        readable_paths=sorted(
            {printable(path) for path in (*(mount.source for mount in policy.runtime if mount.source), *policy.read)}
        ),
        writable_paths=[printable(path) for path in policy.write],
        hosts=[*spec.hosts, *(f"not {host}" for host in spec.deny_hosts)],
        environment=[name for name, _ in policy.environment],
        limits=_limits(spec),
        receipt=receipt_message(receipt) if receipt is not None else None,
        secrets=spec.secrets,
        private_addresses=spec.private,
        engines=[spec.engine] if spec.engine else [],
    )


def _limits(spec: WorkerSpec) -> tool_pb2.Limits:
    limits = spec.policy.limits
    return tool_pb2.Limits(
        memory_bytes=limits.memory_bytes,
        cpu_seconds=spec.cpu_s,
        processes=limits.processes,
        open_files=limits.open_files,
        file_size_bytes=limits.file_size_bytes,
        scratch_bytes=limits.scratch_bytes,
        scratch_files=limits.scratch_files,
        cpus=limits.cpus,
        output_bytes=spec.output_bytes,
        log_bytes_per_second=spec.log_bytes_per_second,
    )


def _timestamp(unix_s: float) -> Timestamp:
    seconds, nanos = divmod(int(unix_s * 1e9), 1_000_000_000)
    return Timestamp(seconds=seconds, nanos=nanos)
