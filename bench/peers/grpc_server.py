"""The barest grpc.aio server: answers each request with itself. `python -m bench.peers.grpc_server ADDRESS`."""

from __future__ import annotations

import asyncio
import sys

import grpc
from google.protobuf.wrappers_pb2 import StringValue

METHOD = "/bench.Echo/Echo"


async def _echo(request: StringValue, _context: grpc.aio.ServicerContext[StringValue, StringValue]) -> StringValue:
    return request


async def main(address: str) -> None:
    """Serve until stdin ends."""
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(
        _echo,
        request_deserializer=StringValue.FromString,
        response_serializer=StringValue.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", {"Echo": handler}),))
    server.add_insecure_port(address)
    await server.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
