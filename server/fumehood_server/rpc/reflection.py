"""gRPC server reflection, `grpc.reflection.v1` beside `v1alpha`.

grpcio-reflection has v1alpha alone. The messages of both are the same but for their package's name, which isn't on the
wire, so that one servicer answers both. Source: https://github.com/grpc/grpc-proto/tree/master/grpc/reflection
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection, reflection_pb2

_ALPHA, _V1 = "v1alpha", "v1"
SERVICE_NAMES = tuple(reflection.SERVICE_NAME.replace(_ALPHA, version) for version in (_V1, _ALPHA))
"""Both, as `grpcurl list` shows them."""


def reflection_handlers(services: Sequence[str]) -> tuple[grpc.GenericRpcHandler[Any, Any], ...]:
    """Describe the services, and reflection itself, by both versions."""
    _describe_v1()
    servicer = reflection.aio.ReflectionServicer((*services, *SERVICE_NAMES))  # type: ignore[attr-defined] # in its __all__

    async def describe(requests: Any, context: Any) -> None:  # noqa: ANN401 - gRPC's
        async for answer in servicer.ServerReflectionInfo(requests, context):
            await context.write(answer)

    handler = grpc.stream_stream_rpc_method_handler(
        describe,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    methods = {"ServerReflectionInfo": handler}
    return tuple(grpc.method_handlers_generic_handler(name, methods) for name in SERVICE_NAMES)


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
