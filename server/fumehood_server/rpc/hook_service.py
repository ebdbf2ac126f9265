"""`fumehood.v1.HookService`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
from fumehood.v1 import hook_service_pb2 as pb

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.hooks import HookConnection, Question, UnaskedError
from fumehood_server.hooks.connection import MAX_QUESTIONS
from fumehood_server.hooks.registry import ServedHook
from fumehood_server.model.durations import set_duration
from fumehood_server.model.hooks import HookConfig
from fumehood_server.rpc.authentication import asking
from fumehood_server.rpc.hang_up import hang_ups_end_it
from fumehood_server.rpc.hook_messages import MAX_FIELDS, listed_hooks, question_message, read_answer
from fumehood_server.rpc.reading import Requests, Service
from fumehood_server.rpc.stream_slots import StreamSlots
from fumehood_server.telemetry import get_logger

if TYPE_CHECKING:
    from fumehood_server.rpc.server_context import ServerContext

SERVICE = pb.DESCRIPTOR.services_by_name["HookService"].full_name

MAX_STREAMS = 64
MAX_STREAMS_OF_CONNECTION = 16
FIRST_MESSAGE_S = 30.0
"""For a stream to say which hook it serves."""

_Requests = Requests[pb.InterceptRequest]
_Context = grpc.aio.ServicerContext[Any, bytes]


class HookService:
    """The methods. Each returns or writes serialised messages, or raises RefusedError."""

    def __init__(self, server: ServerContext) -> None:
        """Serve the hooks of this sidecar."""
        self._server = server
        self._streams = StreamSlots("streams of hooks", total=MAX_STREAMS, connection=MAX_STREAMS_OF_CONNECTION)

    def service(self) -> Service:
        """The service, with what its requests may hold."""
        methods = {
            # Calls wait for what a hook decides, so it waits for no session.
            "Intercept": self._server.reader.duplex(
                self.intercept, pb.InterceptRequest, max_fields=MAX_FIELDS, paced=False
            ),
            "ListHooks": self._server.reader.unary(self.list_hooks, pb.ListHooksRequest),
        }
        return Service(SERVICE, methods)

    async def list_hooks(self, _request: pb.ListHooksRequest, _context: _Context) -> bytes:
        """See hook_service.proto, as for every method."""
        return listed_hooks(self._server.hooks).SerializeToString()

    async def intercept(self, requests: _Requests, context: _Context) -> None:
        """Ask whoever serves a hook."""
        refused: list[RefusedError] = []  # past a task group, which would wrap it

        async def serve() -> None:
            try:
                await self._serve(requests, context)
            except RefusedError as exc:
                refused.append(exc)

        with self._streams.take(context.peer()), hang_ups_end_it():
            await self._server.drain.until_end(serve())
        if refused:
            raise refused[0]

    async def _serve(self, requests: _Requests, context: _Context) -> None:
        try:
            async with asyncio.timeout(FIRST_MESSAGE_S):
                first = await requests.read()
        except TimeoutError:
            raise _invalid(f"nothing said within {FIRST_MESSAGE_S:g} s which hook this stream serves") from None
        if first is None or first.WhichOneof("request") != "serve":
            raise _invalid("the first message says which hook the stream serves: `serve`")
        registry = self._server.hooks.registry
        served, connection = registry.connect(first.serve.hook, asking().still())
        log = get_logger().bind(hook=connection.hook, caller=connection.by.recorded)
        log.info("hook_connected", connections=len(served.connections))
        refusal: Refusal | None = None
        try:
            await _write(context, _serving(served.config))
            refusal = await self._until_ended(requests, context, served, connection)
        except RefusedError as exc:
            refusal = exc.refusal
            raise
        finally:
            served.remove(connection, refusal)
            reason = "" if refusal is None else refusal.message
            log.info("hook_disconnected", connections=len(served.connections), reason=reason)
        if refusal is not None:
            raise RefusedError(refusal)

    async def _until_ended(
        self, requests: _Requests, context: _Context, served: ServedHook, connection: HookConnection
    ) -> Refusal | None:
        """Ask and read answers until one side ends the stream. Why, where it is the sidecar."""
        tasks = (
            asyncio.create_task(self._ask(context, served, connection)),
            asyncio.create_task(self._take_answers(requests, served, connection)),
        )
        try:
            await asyncio.wait((*tasks, connection.ended), return_when=asyncio.FIRST_COMPLETED)
            for each in tasks:
                if each.done():
                    await each
            return connection.ended.result() if connection.ended.done() else None
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, context: _Context, served: ServedHook, connection: HookConnection) -> None:
        while True:
            question: Question = await connection.next_question()
            self._check(served)
            message = question_message(question)
            del question
            await _write(context, message)

    async def _take_answers(self, requests: _Requests, served: ServedHook, connection: HookConnection) -> None:
        """Until the stream ends."""
        while True:
            request = await requests.read()
            if request is None:
                return
            self._check(served)
            if request.WhichOneof("request") != "answer":
                raise _invalid("after `serve`, each message is an answer")
            try:
                question = connection.question(request.answer.question_id)
                if question is not None:
                    connection.answer(question, read_answer(request.answer, question.stage))
            except UnaskedError as exc:
                raise _invalid(str(exc)) from exc

    def _check(self, served: ServedHook) -> None:
        self._server.hooks.registry.check(served, asking().still())


def _serving(config: HookConfig) -> pb.InterceptResponse:
    message = pb.InterceptResponse(serving=pb.HookServing(max_questions=MAX_QUESTIONS))
    set_duration(message.serving.timeout, config.timeout_s)
    return message


async def _write(context: _Context, message: pb.InterceptResponse) -> None:
    await context.write(message.SerializeToString())


def _invalid(message: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.REQUEST_INVALID, message))
