"""A bare gRPC server that says again what it is told: the control, in which nothing of the sidecar takes part.

What it is late for beside an attack, the machine is: processes that share its processors are.
`python -m tests.soak.echo TARGET` serves until SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import grpc

ECHO = "/soak.Echo/Echo"


async def _echo(request: bytes, _context: object) -> bytes:
    return request


async def serve(target: str) -> None:
    """Serve there."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("soak.Echo", {"Echo": handler}),))
    server.add_insecure_port(target)
    await server.start()
    await stop.wait()
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
