"""Where the workers of a plugin are, by the sidecar's own word."""

from __future__ import annotations

import grpc
from fumehood.v1 import plugin_service_pb2 as pb
from fumehood.v1 import plugin_service_pb2_grpc as plugin_grpc

_ANSWER_S = 10.0
"""A lookup without any start: far more than it takes."""


async def worker_process_ids(address: str, plugin: str) -> tuple[int, ...]:
    """Return the process ids of a plugin's live workers, each the root of its sandbox."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = plugin_grpc.PluginServiceStub(channel)
        answer = await stub.GetPlugin(pb.GetPluginRequest(name=plugin), timeout=_ANSWER_S)
        return tuple(worker.process_id for worker in answer.plugin.workers if worker.process_id)
