"""Checks the `Ready` of a worker against the definitions that were accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fumehood_server.workers import faults
from fumehood_server.workers.wire import messages

if TYPE_CHECKING:
    from fumehood.v1 import plugin_pb2

    from fumehood_server.model.call import CallError
    from fumehood_server.model.plugin import WorkerSpec


async def definitions_error(spec: WorkerSpec, greeting: plugin_pb2.Ready) -> CallError | None:
    """Why a worker that is ready gets no call: it declares other tools than those that were accepted."""
    sent = greeting.tools
    if spec.recognise is None:
        return None
    if len(sent) > messages.MAX_TOOLS:
        return faults.other_definitions_error(spec.plugin, f"more than {messages.MAX_TOOLS} tools")
    problem = await spec.recognise([tool.SerializeToString(deterministic=True) for tool in sent])
    return faults.other_definitions_error(spec.plugin, problem) if problem else None
