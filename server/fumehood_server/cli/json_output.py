"""JSON output: what `--json` prints of each message. Stable: fields are added, never renamed; docs/cli.md lists them.

Keys are snake_case and name their unit; enum values are the lower-case words of the configuration; what is absent is
null; JSON within the protocol (schemas, details) is JSON here, not text.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from fumehood.v1 import error_pb2, plugin_service_pb2, tool_pb2
from google.protobuf.descriptor import EnumDescriptor

from fumehood_server.cli.output import json_or_text
from fumehood_server.model.durations import duration_s

if TYPE_CHECKING:
    from fumehood.v1 import content_pb2, mcp_service_pb2

JsonObject = dict[str, Any]

_LIMITS = (
    ("memory_bytes", "memory_bytes"),
    ("cpu_seconds", "cpu_s"),
    ("processes", "processes"),
    ("open_files", "open_files"),
    ("file_size_bytes", "file_size_bytes"),
    ("scratch_bytes", "scratch_bytes"),
    ("output_bytes", "output_bytes"),
    ("log_bytes_per_second", "log_bytes_per_second"),
    ("cpus", "cpus"),
    ("scratch_files", "scratch_files"),
)


def tool_json(message: tool_pb2.Tool) -> JsonObject:
    """A tool: its definition, plugin, permission and availability."""
    definition = message.definition
    return {
        "name": definition.name,
        "declared_name": message.declared_name,
        "title": definition.title,
        "description": definition.description,
        "plugin": message.plugin,
        "plugin_version": message.plugin_version,
        **definition_terms_json(definition),
        "permission": enum_name(tool_pb2.Permission.DESCRIPTOR, message.permission),
        "availability": availability_json(message.availability),
        "definition_digest": message.definition_digest,
        "input_schema": json_or_text(definition.input_schema_json),
        "output_schema": json_or_text(definition.output_schema_json),
    }


def definition_terms_json(definition: tool_pb2.ToolDefinition) -> JsonObject:
    """A definition's level, timeout and other terms, without names and schemas."""
    return {
        "side_effects": level_name(definition.side_effects),
        "idempotent": definition.idempotent,
        "requires": list(definition.requires),
        "timeout_s": duration_s(definition.timeout) if definition.HasField("timeout") else None,
        "isolation": enum_name(tool_pb2.Isolation.DESCRIPTOR, definition.isolation),
        "execution_mode": enum_name(tool_pb2.ExecutionMode.DESCRIPTOR, definition.execution_mode),
        "limits": limits_json(definition.limits),
    }


def availability_json(message: tool_pb2.Availability) -> JsonObject:
    """Whether a tool could run."""
    return {"available": message.available, "reasons": [reason_json(each) for each in message.reasons]}


def reason_json(message: tool_pb2.UnavailableReason) -> JsonObject:
    """One reason why a tool is unavailable."""
    return {"code": message.code, "message": message.message, "remedy": message.remedy}


def result_json(message: tool_pb2.ToolResult) -> JsonObject:
    """How a call ended."""
    return {
        "call_id": message.call_id,
        "tool": message.tool,
        "plugin": message.plugin,
        "is_error": message.is_error,
        "content": [block_json(each) for each in message.content],
        "details": json_or_text(message.details_json),
        "terminate": message.terminate,
        "error": error_json(message.error) if message.HasField("error") else None,
        "attempts": message.attempts,
        "recorded_call_id": message.recorded_call_id,
        "cached": {"call_id": message.cached.call_id, "age_s": duration_s(message.cached.age)}
        if message.HasField("cached")
        else None,
        "coercions": [
            {"pointer": each.pointer, "rule": each.rule, "message": each.message} for each in message.coercions
        ],
        "usage": usage_json(message.usage) if message.HasField("usage") else None,
        "sandbox": receipt_json(message.sandbox) if message.HasField("sandbox") else None,
    }


def block_json(message: content_pb2.Content) -> JsonObject:
    """A block of content."""
    about: JsonObject = {
        "resource_uri": message.resource_uri,
        "annotations": annotations_json(message.annotations) if message.HasField("annotations") else None,
    }
    if message.WhichOneof("block") == "blob":
        data = base64.b64encode(message.blob.data).decode()
        return {"type": "blob", "media_type": message.blob.media_type, "data_base64": data, **about}
    return {"type": "text", "text": message.text, "media_type": message.text_media_type, **about}


def annotations_json(message: content_pb2.ContentAnnotations | mcp_service_pb2.McpAnnotations) -> JsonObject:
    """For whom something is and how important."""
    return {
        "audience": list(message.audience),
        "priority": message.priority if message.HasField("priority") else None,
        "last_modified": message.last_modified,
    }


def error_json(message: error_pb2.SystemError) -> JsonObject:
    """A failure, with what caused it."""
    return {
        "code": message.code,
        "category": enum_name(error_pb2.FailureCategory.DESCRIPTOR, message.category),
        "retryable": message.retryable,
        "message": message.message,
        "details": json_or_text(message.details_json),
        "caused_by": error_json(message.caused_by) if message.HasField("caused_by") else None,
    }


def usage_json(message: tool_pb2.Usage) -> JsonObject:
    """What a call used."""
    return {
        "wall_s": duration_s(message.wall_time),
        "queue_s": duration_s(message.queue_time),
        "input_bytes": message.input_bytes,
        "output_bytes": message.output_bytes,
        "cpu_s": duration_s(message.cpu_time) if message.HasField("cpu_time") else None,
        "peak_memory_bytes": message.peak_memory_bytes or None,
        "source": message.source,
        "egress_sent_bytes": message.egress_sent_bytes,
        "egress_received_bytes": message.egress_received_bytes,
    }


def receipt_json(message: tool_pb2.SandboxReceipt) -> JsonObject:
    """A sandbox receipt."""
    return {
        "side_effects": level_name(message.side_effects),
        "isolation": enum_name(tool_pb2.Isolation.DESCRIPTOR, message.isolation),
        "backend": message.backend,
        "layers": [{"name": each.name, "detail": each.detail, "weaker": each.weaker} for each in message.layers],
        "policy_digest": message.policy_digest,
    }


def update_json(message: tool_pb2.ToolUpdate) -> JsonObject:
    """A progress update of a running tool."""
    return {
        "call_id": message.call_id,
        "sequence": message.sequence,
        "message": message.message,
        "progress": message.progress if message.HasField("progress") else None,
        "total": message.total if message.HasField("total") else None,
        "unit": message.unit,
        "data": json_or_text(message.data_json),
    }


def question_json(message: tool_pb2.ToolQuestion) -> JsonObject:
    """What a call's tool asks."""
    return {
        "call_id": message.call_id,
        "tool": message.tool,
        "question_id": message.question_id,
        "message": message.message,
        "schema": json_or_text(message.schema_json),
        "timeout_s": duration_s(message.timeout),
    }


def plugin_json(message: plugin_service_pb2.Plugin, *, full: bool = False) -> JsonObject:
    """A plugin; `full` adds its tools, workers and sandboxes."""
    shape: JsonObject = {
        "name": message.name,
        "version": message.version,
        "kind": message.kind,
        "path": message.path,
        "digest": message.digest,
        "state": enum_name(plugin_service_pb2.PluginState.DESCRIPTOR, message.state),
        "reasons": [reason_json(each) for each in message.reasons],
        "max_side_effects": level_name(message.max_side_effects),
        "tool_count": message.tool_count,
        "grants": {name: list(getattr(message.grants, name)) for name in _GRANTS},
    }
    if full:
        shape["tools"] = [tool_json(each) for each in message.tools]
        shape["workers"] = [_worker(each) for each in message.workers]
        shape["sandboxes"] = [_sandbox(each) for each in message.sandboxes]
    return shape


_GRANTS = ("readable_paths", "writable_paths", "hosts", "denied_hosts", "private_addresses", "engines")


def _worker(message: plugin_service_pb2.Worker) -> JsonObject:
    return {
        "id": message.id,
        "state": message.state,
        "side_effects": level_name(message.side_effects),
        "calls_in_flight": message.calls_in_flight,
        "calls_served": message.calls_served,
        "start_time": message.start_time.ToJsonString() if message.HasField("start_time") else None,
        "process_id": message.process_id or None,
    }


def _sandbox(message: plugin_service_pb2.EffectiveSandbox) -> JsonObject:
    return {
        "side_effects": level_name(message.side_effects),
        "readable_paths": list(message.readable_paths),
        "writable_paths": list(message.writable_paths),
        "hosts": list(message.hosts),
        "private_addresses": list(message.private_addresses),
        "engines": list(message.engines),
        "secrets": list(message.secrets),
        "environment": list(message.environment),
        "limits": limits_json(message.limits),
        "receipt": receipt_json(message.receipt) if message.HasField("receipt") else None,
    }


def log_line_json(message: plugin_service_pb2.TailPluginLogsResponse) -> JsonObject:
    """One line of a plugin's log."""
    return {
        "time": message.time.ToJsonString(),
        "source": message.source,
        "level": message.level,
        "message": message.message,
        "worker_id": message.worker_id,
        "call_id": message.call_id,
        "dropped": message.dropped,
        "fields": json_or_text(message.fields_json),
    }


def limits_json(message: tool_pb2.Limits) -> JsonObject:
    """Limits; null where the default is in force."""
    return {key: getattr(message, field) if message.HasField(field) else None for field, key in _LIMITS}  # type: ignore[arg-type]  # names of the message's own fields


def level_name(number: int) -> str:
    """A side-effect level, as in the configuration."""
    return enum_name(tool_pb2.SideEffects.DESCRIPTOR, number)


def enum_name(enum: EnumDescriptor, number: int) -> str:
    """An enum value's name without its prefix, in lower case. An unknown number is kept as a number."""
    value = enum.values_by_number.get(number)
    if value is None:
        return str(number)
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return value.name.removeprefix(prefix).lower()
