"""Side-effect levels as the protocol's enum `SideEffects`, for both wires."""

from __future__ import annotations

from collections.abc import Mapping

from fumehood.v1 import tool_pb2
from fumehood_sandbox import Level

SIDE_EFFECTS: Mapping[Level, tool_pb2.SideEffects.ValueType] = {
    Level.NONE: tool_pb2.SIDE_EFFECTS_NONE,
    Level.READ: tool_pb2.SIDE_EFFECTS_READ,
    Level.WRITE: tool_pb2.SIDE_EFFECTS_WRITE,
    Level.EXTERNAL: tool_pb2.SIDE_EFFECTS_EXTERNAL,
}
