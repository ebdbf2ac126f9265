"""A gRPC server of which every answer has control characters in each text, as a plugin could put them there."""

# ruff: noqa: N802, ARG002 - the names and arguments are gRPC's
from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import grpc
from fumehood.v1 import plugin_service_pb2 as plugin_pb
from fumehood.v1 import plugin_service_pb2_grpc as plugin_grpc
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1 import tool_service_pb2_grpc as tool_grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_M = TypeVar("_M", bound=Message)

CONTROLS = [*map(chr, (*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), *range(0x2028, 0x202F)))]
CONTROLS += [*map(chr, range(0x2066, 0x206A)), "\u061c", "\u200e", "\u200f"]
FORGED = "00:00:00 sidecar forged"
HOSTILE = "".join(f"<{each}>" for each in CONTROLS) + f"\x1b]0;title\x07\x1b[2J\n{FORGED}"
_DEPTH = 3


def raw_controls(text: str) -> list[str]:
    """Those that are in the text as they were sent."""
    return [each for each in CONTROLS if f"<{each}>" in text]


def fill(message: _M, depth: int = 0) -> _M:
    """Put `HOSTILE` into each text of the message."""
    for field in message.DESCRIPTOR.fields:
        repeated = field.is_repeated
        if field.containing_oneof is not None and field.containing_oneof.fields[0] is not field:
            continue
        if field.type == FieldDescriptor.TYPE_STRING:
            value = _json() if field.name.endswith("_json") else HOSTILE
            if repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
        elif field.type == FieldDescriptor.TYPE_MESSAGE and depth < _DEPTH:
            if field.message_type.file.package != "fumehood.v1":
                continue
            fill(getattr(message, field.name).add() if repeated else getattr(message, field.name), depth + 1)
    return message


def _json() -> str:
    shape = {
        "type": "object",
        "properties": {HOSTILE: {"type": HOSTILE, "description": HOSTILE, "default": HOSTILE, "enum": [HOSTILE]}},
        "required": [HOSTILE],
    }
    return json.dumps(shape, ensure_ascii=False)


class HostileSidecar(tool_grpc.ToolServiceServicer, plugin_grpc.PluginServiceServicer):
    """What the tool called "fails" answers is an error."""

    target: str

    def ListTools(self, request: pb.ListToolsRequest, context: grpc.ServicerContext) -> pb.ListToolsResponse:
        return pb.ListToolsResponse(tools=[fill(tool_pb2.Tool())] if request.include_unavailable else [])

    def GetTool(self, request: pb.GetToolRequest, context: grpc.ServicerContext) -> pb.GetToolResponse:
        if request.name == "absent":
            context.abort(grpc.StatusCode.NOT_FOUND, HOSTILE.replace("\n", " "))
        return fill(pb.GetToolResponse())

    def CallTool(self, request: pb.CallToolRequest, context: grpc.ServicerContext) -> pb.CallToolResponse:
        response = fill(pb.CallToolResponse())
        response.result.is_error = request.tool == "fails"
        return response

    def StreamTool(
        self, request: pb.StreamToolRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.StreamToolResponse]:
        started = pb.StreamToolResponse()
        fill(started.started)
        update = pb.StreamToolResponse()
        fill(update.update)
        finished = pb.StreamToolResponse()
        fill(finished.finished)
        finished.finished.is_error = True
        yield from (started, update, finished)

    def ListPlugins(
        self, request: plugin_pb.ListPluginsRequest, context: grpc.ServicerContext
    ) -> plugin_pb.ListPluginsResponse:
        return fill(plugin_pb.ListPluginsResponse())

    def GetPlugin(
        self, request: plugin_pb.GetPluginRequest, context: grpc.ServicerContext
    ) -> plugin_pb.GetPluginResponse:
        return fill(plugin_pb.GetPluginResponse())

    def ReloadPlugin(
        self, request: plugin_pb.ReloadPluginRequest, context: grpc.ServicerContext
    ) -> plugin_pb.ReloadPluginResponse:
        return fill(plugin_pb.ReloadPluginResponse())

    def ReloadConfig(
        self, request: plugin_pb.ReloadConfigRequest, context: grpc.ServicerContext
    ) -> plugin_pb.ReloadConfigResponse:
        return fill(plugin_pb.ReloadConfigResponse())

    def TailPluginLogs(
        self, request: plugin_pb.TailPluginLogsRequest, context: grpc.ServicerContext
    ) -> Iterator[plugin_pb.TailPluginLogsResponse]:
        yield fill(plugin_pb.TailPluginLogsResponse())


@contextmanager
def running_hostile() -> Iterator[str]:
    """Its address."""
    # Not pytest's tmp_path: the path of a unix socket may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        target = f"unix:{Path(name) / 's'}"
        servicer = HostileSidecar()
        server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
        tool_grpc.add_ToolServiceServicer_to_server(servicer, server)
        plugin_grpc.add_PluginServiceServicer_to_server(servicer, server)
        server.add_insecure_port(target)
        server.start()
        try:
            yield target
        finally:
            server.stop(None).wait(10)
