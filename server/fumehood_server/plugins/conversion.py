"""Converts the definitions of a plugin's `Ready` frame from protobuf. Protobuf types end here."""

from __future__ import annotations

from fumehood.v1 import tool_pb2
from google.protobuf.descriptor import EnumDescriptor

from fumehood_server.model.durations import duration_s
from fumehood_server.plugins.definitions import RawDefinition

_SIDE_EFFECTS: EnumDescriptor = tool_pb2.SideEffects.DESCRIPTOR
_ISOLATION: EnumDescriptor = tool_pb2.Isolation.DESCRIPTOR
_EXECUTION_MODE: EnumDescriptor = tool_pb2.ExecutionMode.DESCRIPTOR

_RENAMED = {"cpu_seconds": "cpu_s"}
"""Limits whose names differ between the protocol and the manifest."""


def from_proto(message: tool_pb2.ToolDefinition) -> RawDefinition:
    """The message as an unchecked definition. An enum number of a later version becomes a word that is refused."""
    timeout_s = duration_s(message.timeout) if message.HasField("timeout") else None
    return RawDefinition(
        name=message.name,
        title=message.title,
        description=message.description,
        input_schema_json=message.input_schema_json,
        output_schema_json=message.output_schema_json,
        side_effects=_word(_SIDE_EFFECTS, message.side_effects, "SIDE_EFFECTS_"),
        idempotent=message.idempotent,
        requires=tuple(message.requires),
        timeout_s=timeout_s,
        idle_timeout_s=duration_s(message.idle_timeout) if message.HasField("idle_timeout") else None,
        isolation=_word(_ISOLATION, message.isolation, "ISOLATION_"),
        execution_mode=_word(_EXECUTION_MODE, message.execution_mode, "EXECUTION_MODE_"),
        prepares_arguments=message.prepares_arguments,
        claims=tuple(message.claims),
        limits={_RENAMED.get(each.name, each.name): value for each, value in message.limits.ListFields()},
    )


def _word(enum: EnumDescriptor, number: int, prefix: str) -> str:
    """The enum value's name in lower case without its prefix; empty for UNSPECIFIED."""
    if number == 0:
        return ""
    value = enum.values_by_number.get(number)
    return value.name.removeprefix(prefix).lower() if value else f"number {number}"
