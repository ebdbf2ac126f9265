"""A batch of calls: begun in order, a bounded number at a time, and answered in order over one server stream."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

import grpc
from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.calls import Call
from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.call import CallRequest
from fumehood_server.model.tool import ExecutionMode
from fumehood_server.rpc.admission import CALL_TOOLS, caller_deadline
from fumehood_server.rpc.authentication import asking
from fumehood_server.rpc.hang_up import hang_ups_end_it
from fumehood_server.rpc.send_queue import MAX_COMBINED_BYTES
from fumehood_server.rpc.status import first_refusal, session_refusal
from fumehood_server.rpc.unread import STREAM_BYTES

if TYPE_CHECKING:
    from fumehood_server.rpc.server_context import ServerContext

MAX_HELD_BYTES = 4 * 1024 * 1024
"""Answers that wait for an earlier one, or for a slow reader, above which no further call begins."""

MAX_BATCH_FIELDS = 16_384
"""Fields of a long batch and of all its calls: 512 calls (the most that `[batch] max_calls` can be) of 30 each."""

BatchContext = grpc.aio.ServicerContext[pb.CallToolsRequest, bytes]


class Batch:
    """One batch: a task begins its calls, one for each waits for its outcome, and the method's own writes answers."""

    def __init__(self, server: ServerContext, request: pb.CallToolsRequest, context: BatchContext) -> None:
        """Read all of its calls.

        Raises:
            RefusedError: the batch, or one of its calls, is wrong in itself; or the caller has too much unread.
        """
        self._server = server
        self._context = context
        self._asking = asking()
        self._connection = self._asking.admitted.connection
        self._requests = deque(self._read(request))
        """Those that have not begun."""
        self._count = len(self._requests)
        self._held: dict[int, tuple[pb.BatchAnswer, int]] = {}
        """Answers by their calls' places, with their sizes."""
        self._answered = asyncio.Event()
        self._places = asyncio.Semaphore(self._concurrent(request.max_concurrent))
        self._calls: set[Call] = set()
        """Those without an answer."""
        self._held_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._terminate = True

    async def run(self) -> None:
        """Run the calls and write their answers. Cancelling this cancels the calls.

        Raises:
            RefusedError: there is no room for an answer.
        """
        refusal: Refusal | None = None
        try:
            with hang_ups_end_it():
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._start_all(tasks))
                    await self._write_all()
        except* RefusedError as group:
            refusal = first_refusal(group)
        finally:
            for call in self._calls:
                call.abandon()
            if self._held_bytes:
                self._server.unread.remove(self._connection, self._held_bytes)
        if refusal is not None:
            raise RefusedError(refusal)

    def _read(self, request: pb.CallToolsRequest) -> list[CallRequest]:
        server = self._server
        most = server.config().batch.max_calls
        if not 0 < len(request.calls) <= most:
            text = f"calls has {len(request.calls)} entries: a batch has 1 to {most} ([batch] max_calls)"
            raise RefusedError(Refusal(RefusalReason.REQUEST_INVALID, text))
        server.unread.check(self._connection)
        caller, deadline = self._asking.admitted, caller_deadline(self._context.time_remaining())
        came_by = (CALL_TOOLS, self._context.invocation_metadata)
        requests = []
        for index, each in enumerate(request.calls):
            try:
                requests.append(server.admission.read_request(each, deadline, caller=caller, came_by=came_by))
            except RefusedError as exc:
                refusal = replace(exc.refusal, message=f"calls[{index}]: {exc.refusal.message}")
                server.refusals.call("CallTools", refusal, each, caller.recorded)
                raise RefusedError(refusal) from None
        return requests

    def _concurrent(self, wanted: int) -> int:
        server = self._server
        for name in {each.tool for each in self._requests}:
            tool = server.catalog.find(name)
            if tool is not None and tool.definition.execution_mode is ExecutionMode.SEQUENTIAL:
                return 1
        return min(server.config().batch.concurrent(wanted), server.executor.max_calls_of_one)

    async def _start_all(self, tasks: asyncio.TaskGroup) -> None:
        for index in range(self._count):
            await self._places.acquire()
            await self._has_room.wait()
            request = self._requests.popleft()
            if request.caller_deadline is not None and time.monotonic() >= request.caller_deadline:
                return  # gRPC ends the stream by now: what has not begun never does
            try:
                caller = self._asking.still()
                call = self._server.executor.start(replace(request, identity=caller, caller=caller.recorded))
            except RefusedError as exc:
                self._refuse(index, request, exc.refusal)
                self._places.release()
                continue
            self._calls.add(call)
            tasks.create_task(self._wait(index, call))

    async def _wait(self, index: int, call: Call) -> None:
        try:
            outcome = await call.outcome()
        except RefusedError as exc:
            self._calls.discard(call)
            self._refuse(index, call.request, exc.refusal)
        else:
            self._calls.discard(call)
            self._terminate = self._terminate and outcome.terminate
            answer = pb.BatchAnswer(index=index)
            self._server.results.fill(answer.result, outcome)
            self._hold(answer)
        finally:
            self._places.release()

    def _refuse(self, index: int, request: CallRequest, refusal: Refusal) -> None:
        server = self._server
        self._terminate = False
        server.refusals.read_call("CallTools", refusal, request)
        if server.metrics is not None:
            server.metrics.refusals.add(refusal.reason.value)
        refused = session_refusal(refusal, pb.SESSION_REQUEST_KIND_CALL, request.call_id)
        self._hold(pb.BatchAnswer(index=index, refused=refused))

    def _hold(self, answer: pb.BatchAnswer) -> None:
        size = answer.ByteSize() + STREAM_BYTES
        self._server.unread.add(self._connection, size)
        self._held_bytes += size
        if self._held_bytes > MAX_HELD_BYTES:
            self._has_room.clear()
        self._held[answer.index] = (answer, size)
        self._answered.set()

    async def _write_all(self) -> None:
        written = 0
        while written < self._count:
            while written not in self._held:
                self._answered.clear()
                await self._answered.wait()
            response, size = pb.CallToolsResponse(), 0
            while written in self._held and (not size or size + self._held[written][1] <= MAX_COMBINED_BYTES):
                answer, of_one = self._held.pop(written)
                response.answers.append(answer)
                size += of_one
                written += 1
            if written == self._count:
                response.finished.terminate = self._terminate
            await self._server.pacer.turn()
            await self._context.write(response.SerializeToString())
            self._server.unread.remove(self._connection, size)
            self._held_bytes -= size
            if self._held_bytes <= MAX_HELD_BYTES:
                self._has_room.set()
