"""What a call may request of the sidecar: each kind, how it is performed, and how it is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fumehood_server.errors import PluginRequestError
from fumehood_server.secrets import SecretUnavailableError
from fumehood_server.workers.wire import messages

if TYPE_CHECKING:
    from fumehood.v1 import plugin_pb2

    from fumehood_server.model.plugin_requests import PluginRequestHandler, RequestingCall
    from fumehood_server.secrets import Redactor
    from fumehood_server.workers.process.attempt import WorkerAttempt
    from fumehood_server.workers.wire.pipes import PipeWriter

HIGH_WATER_BYTES = 256 * 1024
"""Answers that wait for a process to read them, before the next part of one is made: four times what a pipe holds."""


class Request(Protocol):
    """One request: how it is performed and how it is refused."""

    def refusal(self, error: PluginRequestError) -> bytes:
        """The frame that says that there is no answer, or no more of it."""

    async def perform(self, plugin_requests: PluginRequestHandler, caller: RequestingCall, writer: PipeWriter) -> None:
        """Have it done, and send the answer. Raises `PluginRequestError`."""


class SecretRequest:
    """A request for a secret. It is answered with one frame."""

    __slots__ = ("_invocation_id", "_name", "_redactor", "_request_id")

    def __init__(self, attempt: WorkerAttempt, message: plugin_pb2.SecretRequest, redactor: Redactor) -> None:
        self._invocation_id = attempt.invocation_id
        self._request_id = message.request_id
        self._name = message.name
        self._redactor = redactor

    def refusal(self, error: PluginRequestError) -> bytes:
        """See `Request`."""
        return messages.secret_response(self._invocation_id, self._request_id, problem=error.message)

    async def perform(self, plugin_requests: PluginRequestHandler, caller: RequestingCall, writer: PipeWriter) -> None:
        """See `Request`."""
        await writer.drained(HIGH_WATER_BYTES)
        try:
            value = await plugin_requests.secret(caller, self._name)
        except SecretUnavailableError as error:
            # The remedy is the operator's; a model that reads this can do nothing with it.
            raise PluginRequestError(error.code, error.problem) from error
        await self._redactor.learn_beside(self._name, value)
        writer.send(messages.secret_response(self._invocation_id, self._request_id, value=value))


class HttpRequest:
    """An HTTP request. It is answered with a head and pieces of the body, or with a failure in place of either."""

    __slots__ = ("_after_head", "_invocation_id", "_message", "_request_id")

    def __init__(self, attempt: WorkerAttempt, message: plugin_pb2.HttpRequest) -> None:
        self._invocation_id = attempt.invocation_id
        self._request_id = message.request_id
        self._message = message
        self._after_head = False

    def refusal(self, error: PluginRequestError) -> bytes:
        """See `Request`."""
        return messages.http_failure(self._invocation_id, self._request_id, error, after_head=self._after_head)

    async def perform(self, plugin_requests: PluginRequestHandler, caller: RequestingCall, writer: PipeWriter) -> None:
        """See `Request`."""
        await writer.drained(HIGH_WATER_BYTES)
        async with plugin_requests.http(caller, messages.http_ask(self._message)) as answer:
            writer.send(messages.http_response(self._invocation_id, self._request_id, answer))
            self._after_head = True
            async for piece in answer.body():
                # Nothing more is read from the network while the process doesn't read.
                await writer.drained(HIGH_WATER_BYTES)
                writer.send(messages.http_body(self._invocation_id, self._request_id, piece, end=False))
        writer.send(messages.http_body(self._invocation_id, self._request_id, b"", end=True))


class QuestionRequest:
    """A question to a person. It is answered with one frame."""

    __slots__ = ("_inputs", "_invocation_id", "_question", "_request_id")

    def __init__(self, attempt: WorkerAttempt, message: plugin_pb2.Question) -> None:
        self._inputs = attempt.invocation.inputs
        self._invocation_id = attempt.invocation_id
        self._request_id = message.request_id
        self._question = messages.asked_question(message)

    def refusal(self, error: PluginRequestError) -> bytes:
        """See `Request`."""
        return messages.no_answer(self._invocation_id, self._request_id, error)

    async def perform(self, plugin_requests: PluginRequestHandler, caller: RequestingCall, writer: PipeWriter) -> None:  # noqa: ARG002 - as in the protocol
        """See `Request`."""
        if self._inputs is None:
            raise PluginRequestError("nobody_to_ask", "nobody answers questions of this call")
        given = await self._inputs.ask(self._question)
        await writer.drained(HIGH_WATER_BYTES)
        writer.send(messages.answer(self._invocation_id, self._request_id, given))


class InferenceRequest:
    """A request for a model's answer. It is answered with one frame."""

    __slots__ = ("_asked", "_inputs", "_invocation_id", "_request_id")

    def __init__(self, attempt: WorkerAttempt, message: plugin_pb2.InferenceRequest) -> None:
        self._inputs = attempt.invocation.inputs
        self._invocation_id = attempt.invocation_id
        self._request_id = message.request_id
        self._asked = messages.asked_inference(message)

    def refusal(self, error: PluginRequestError) -> bytes:
        """See `Request`."""
        return messages.no_inference(self._invocation_id, self._request_id, error)

    async def perform(self, plugin_requests: PluginRequestHandler, caller: RequestingCall, writer: PipeWriter) -> None:  # noqa: ARG002 - as in the protocol
        """See `Request`."""
        if self._inputs is None:
            raise PluginRequestError("engine_not_granted", "no model answers this call")
        given = await self._inputs.infer(self._asked)
        await writer.drained(HIGH_WATER_BYTES)
        writer.send(messages.inference_response(self._invocation_id, self._request_id, given))
