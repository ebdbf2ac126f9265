"""Turns tools into messages, once for each state that they are in."""

from __future__ import annotations

from fumehood.v1 import tool_pb2

from fumehood_server.model.durations import set_duration
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.side_effects import SIDE_EFFECTS
from fumehood_server.model.tool import Availability, DeclaredLimits, ExecutionMode, Isolation, Permission, Reason

PERMISSIONS: dict[Permission, tool_pb2.Permission.ValueType] = {
    Permission.ALLOW: tool_pb2.PERMISSION_ALLOW,
    Permission.REQUIRE_APPROVAL: tool_pb2.PERMISSION_REQUIRE_APPROVAL,
    Permission.DENY: tool_pb2.PERMISSION_DENY,
}
ISOLATIONS: dict[Isolation, tool_pb2.Isolation.ValueType] = {
    Isolation.PROCESS: tool_pb2.ISOLATION_PROCESS,
    Isolation.CALL: tool_pb2.ISOLATION_CALL,
}
EXECUTION_MODES: dict[ExecutionMode, tool_pb2.ExecutionMode.ValueType] = {
    ExecutionMode.PARALLEL: tool_pb2.EXECUTION_MODE_PARALLEL,
    ExecutionMode.SEQUENTIAL: tool_pb2.EXECUTION_MODE_SEQUENTIAL,
}


class ToolWriter:
    """The messages of tools, by name. That of a tool that has changed is made again."""

    __slots__ = ("_written",)

    def __init__(self) -> None:
        self._written: dict[str, tuple[RegisteredTool, Availability, tool_pb2.Tool]] = {}

    def tool(self, tool: RegisteredTool, availability: Availability) -> tool_pb2.Tool:
        """The tool as callers see it. Kept for the next: don't change it."""
        name = tool.name
        found = self._written.get(name)
        if found is not None and found[0] is tool and (found[1] is availability or found[1] == availability):
            return found[2]
        message = tool_message(tool, availability)
        self._written[name] = (tool, availability, message)
        return message


def tool_message(tool: RegisteredTool, availability: Availability) -> tool_pb2.Tool:
    """The tool as callers see it."""
    return tool_pb2.Tool(
        definition=definition_message(tool),
        plugin=tool.plugin,
        plugin_version=tool.plugin_version,
        definition_digest=tool.definition_digest,
        permission=PERMISSIONS.get(tool.permission, tool_pb2.PERMISSION_DENY),
        availability=availability_message(availability),
        declared_name=tool.definition.name,
    )


def definition_message(tool: RegisteredTool) -> tool_pb2.ToolDefinition:
    """What the tool's author declares, under the name that it is called by here."""
    definition = tool.definition
    message = tool_pb2.ToolDefinition(
        name=tool.name,
        title=definition.title,
        description=definition.description,
        input_schema_json=definition.input_schema_json,
        output_schema_json=definition.output_schema_json,
        side_effects=SIDE_EFFECTS[definition.side_effects],
        idempotent=definition.idempotent,
        requires=definition.requires,
        isolation=ISOLATIONS[tool.isolation],
        execution_mode=EXECUTION_MODES[definition.execution_mode],
        limits=_limits(definition.limits),
    )
    set_duration(message.timeout, definition.timeout_s)
    if definition.idle_timeout_s is not None:
        set_duration(message.idle_timeout, definition.idle_timeout_s)
    message.prepares_arguments = definition.prepares_arguments
    message.claims.extend(definition.claims)
    return message


def availability_message(availability: Availability) -> tool_pb2.Availability:
    """Whether a tool could run now."""
    return tool_pb2.Availability(
        available=availability.available, reasons=[reason_message(reason) for reason in availability.reasons]
    )


def reason_message(reason: Reason) -> tool_pb2.UnavailableReason:
    """One thing that stands in the way."""
    return tool_pb2.UnavailableReason(code=reason.code, message=reason.message, remedy=reason.remedy)


def _limits(limits: DeclaredLimits) -> tool_pb2.Limits | None:
    message = tool_pb2.Limits(
        memory_bytes=limits.memory_bytes,
        cpu_seconds=limits.cpu_s,
        processes=limits.processes,
        open_files=limits.open_files,
        file_size_bytes=limits.file_size_bytes,
        scratch_bytes=limits.scratch_bytes,
        scratch_files=limits.scratch_files,
        cpus=limits.cpus,
        output_bytes=limits.output_bytes,
        log_bytes_per_second=limits.log_bytes_per_second,
    )
    return message if message.ByteSize() else None
