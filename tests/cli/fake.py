"""A gRPC server with fault knobs: what a real sidecar says only when it is overloaded, older or leaving."""

# ruff: noqa: N802, ARG002 - the names and arguments are gRPC's
from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from fumehood.v1 import content_pb2, tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1 import tool_service_pb2_grpc as tool_grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

Answer = Callable[[grpc.ServicerContext], pb.CallToolResponse]


def tool(name: str = "odd", description: str = "Does odd things.") -> tool_pb2.Tool:
    return tool_pb2.Tool(
        definition=tool_pb2.ToolDefinition(
            name=name,
            description=description,
            input_schema_json='{"type": "object", "properties": {"n": {"type": "integer"}}}',
            side_effects=tool_pb2.SIDE_EFFECTS_NONE,
        ),
        plugin="fake",
        plugin_version="1",
        permission=tool_pb2.PERMISSION_ALLOW,
        availability=tool_pb2.Availability(available=True),
    )


def result(text: str) -> pb.CallToolResponse:
    block = content_pb2.Content(text=text)
    return pb.CallToolResponse(result=tool_pb2.ToolResult(call_id="c-1", tool="odd", content=[block]))


def refuse(context: grpc.ServicerContext, code: grpc.StatusCode, reason: str, message: str) -> Any:
    detail = AnyMessage()
    detail.Pack(ErrorInfo(reason=reason, domain="fumehood", metadata={"hint": "kept"}))
    context.abort_with_status(rpc_status.to_status(Status(code=code.value[0], message=message, details=[detail])))


@dataclass
class FakeSidecar(tool_grpc.ToolServiceServicer):
    """Set `answer` and `tools` before the command runs."""

    target: str
    tools: list[tool_pb2.Tool] = field(default_factory=lambda: [tool()])
    answer: Answer = lambda _context: result("fine")
    page_size: int = 1000

    def ListTools(self, request: pb.ListToolsRequest, context: grpc.ServicerContext) -> pb.ListToolsResponse:
        start = int(request.page_token or "0")
        end = start + self.page_size
        token = str(end) if end < len(self.tools) else ""
        return pb.ListToolsResponse(tools=self.tools[start:end], next_page_token=token)

    def GetTool(self, request: pb.GetToolRequest, context: grpc.ServicerContext) -> pb.GetToolResponse:
        return pb.GetToolResponse(tool=self.tools[0])

    def CallTool(self, request: pb.CallToolRequest, context: grpc.ServicerContext) -> pb.CallToolResponse:
        return self.answer(context)

    def StreamTool(self, request: pb.StreamToolRequest, context: grpc.ServicerContext) -> Iterator[Any]:
        finished = self.answer(context).result
        yield pb.StreamToolResponse(started=pb.CallStarted(call_id=finished.call_id, tool=finished.tool))
        yield pb.StreamToolResponse(finished=finished)


@contextmanager
def running_fake() -> Iterator[FakeSidecar]:
    # Not pytest's tmp_path: the path of a unix socket may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        servicer = FakeSidecar(target=f"unix:{Path(name) / 's'}")
        server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
        tool_grpc.add_ToolServiceServicer_to_server(servicer, server)
        server.add_insecure_port(servicer.target)
        server.start()
        try:
            yield servicer
        finally:
            server.stop(None).wait(10)
