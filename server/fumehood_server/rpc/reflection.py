"""gRPC server reflection, `grpc.reflection.v1` beside `v1alpha`.

grpcio-reflection has v1alpha alone. The messages of both are the same but for their package's name, which isn't on the
wire, so that one servicer answers both. Source: https://github.com/grpc/grpc-proto/tree/master/grpc/reflection
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import Message
from grpc_reflection.v1alpha import reflection, reflection_pb2

from fumehood_server.rpc.message_stream import follow_messages
from fumehood_server.rpc.reading import Requests, Service
from fumehood_server.rpc.stream_slots import StreamSlots

if TYPE_CHECKING:
    from fumehood_server.rpc.server_context import ServerContext

_ALPHA, _V1 = "v1alpha", "v1"
SERVICE_NAMES = tuple(reflection.SERVICE_NAME.replace(_ALPHA, version) for version in (_V1, _ALPHA))
"""Both, as `grpcurl list` shows them."""


MAX_STREAMS = 32
MAX_STREAMS_OF_CONNECTION = 8
"""Open at a time: each may hold 2 MiB of a request that is half here."""

_MAX_REQUEST_BYTES = 1024
"""It names a file, a symbol or a host."""

_Context = grpc.aio.ServicerContext[Any, bytes]
_Request = reflection_pb2.ServerReflectionRequest


def reflection_services(server: ServerContext, services: Sequence[str]) -> tuple[Service, ...]:
    """Describe the services, and reflection itself, by both versions."""
    _describe_v1()
    servicer = reflection.aio.ReflectionServicer((*services, *SERVICE_NAMES))  # type: ignore[attr-defined] # in its __all__

    slots = StreamSlots("streams of reflection", total=MAX_STREAMS, connection=MAX_STREAMS_OF_CONNECTION)

    async def answers(requests: Requests[Message], context: _Context) -> AsyncGenerator[bytes, None]:
        while (request := await requests.read()) is not None:
            server.unread.check(context.peer())
            async for answer in servicer.ServerReflectionInfo(_only(request), context):
                yield answer.SerializeToString()

    async def describe(requests: Requests[Message], context: _Context) -> None:
        with slots.take(context.peer()):
            await follow_messages(server, answers(requests, context), context, contextlib.nullcontext())

    methods = {"ServerReflectionInfo": server.reader.duplex(describe, _Request, max_bytes=_MAX_REQUEST_BYTES)}
    return tuple(Service(name, methods) for name in SERVICE_NAMES)


async def _only(request: Message) -> AsyncGenerator[Message, None]:
    yield request


def _describe_v1() -> None:
    """Put version 1's file among the descriptors, made of v1alpha's, where no library has brought its own."""
    pool = descriptor_pool.Default()
    file = FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(file)
    file.name = file.name.replace(_ALPHA, _V1)
    file.package = file.package.replace(_ALPHA, _V1)
    for message in file.message_type:
        for field in message.field:
            if not field.type_name:
                continue
            field.type_name = field.type_name.replace(_ALPHA, _V1)
    for method in file.service[0].method:
        method.input_type = method.input_type.replace(_ALPHA, _V1)
        method.output_type = method.output_type.replace(_ALPHA, _V1)
    try:
        pool.FindFileContainingSymbol(SERVICE_NAMES[0])
    except KeyError:
        pool.AddSerializedFile(file.SerializeToString())
