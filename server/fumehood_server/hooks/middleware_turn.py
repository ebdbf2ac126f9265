"""Runs one middleware around one call: a task that stops within `next` while the call goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import orjson

from fumehood_server.hooks.loading import LoadedMiddleware
from fumehood_server.middleware import Call, Content, Denied, Failure, Result
from fumehood_server.model.call import Block
from fumehood_server.model.caller import Caller
from fumehood_server.model.hooks import (
    Allow,
    Answer,
    Answered,
    ChangeArguments,
    ChangeResult,
    Deny,
    Gone,
    HookedCall,
    HookedResult,
    HookGoneError,
    HookKind,
    Stage,
    WhenGone,
)
from fumehood_server.telemetry import get_logger

CLOSE_S = 1.0
"""For its clean-up, once its call has ended without a result."""
_NOBODY = Caller()
_STAGES = (Stage.BEFORE, Stage.AFTER)


class _MisusedError(Exception):
    """It did not keep to `fumehood_server.middleware`."""


class MiddlewareTurn:
    """See `HookTurn`."""

    __slots__ = ("_answered", "_call", "_given", "_loaded", "_shown", "_task")
    kind = HookKind.MIDDLEWARE
    stages: Sequence[Stage] = _STAGES
    when_gone = WhenGone.DENY

    def __init__(self, loaded: LoadedMiddleware, call: HookedCall) -> None:
        """Runs nothing yet."""
        self._loaded = loaded
        self._call = call
        self._task: asyncio.Task[None] | None = None
        self._answered: asyncio.Future[Answer] | None = None
        """What is waited for: first that of before the call, then that of after it."""
        self._given: asyncio.Future[Result] | None = None
        """The call's result, for which the middleware waits."""
        self._shown: Result | None = None

    @property
    def name(self) -> str:
        """See `HookTurn`."""
        return self._loaded.config.name

    @property
    def timeout_s(self) -> float:
        """See `HookTurn`."""
        return self._loaded.config.timeout_s

    async def before(self, arguments_json: str) -> Answered:
        """See `HookTurn`."""
        loop = asyncio.get_running_loop()
        self._answered = loop.create_future()
        self._task = loop.create_task(self._run(_call(self._call, arguments_json)))
        return await self._answer()

    async def after(self, arguments_json: str, result: HookedResult) -> Answered:  # noqa: ARG002 - it has them
        """See `HookTurn`."""
        if self._given is None:
            raise AssertionError("it was asked before the call")
        self._answered = asyncio.get_running_loop().create_future()
        self._shown = _result(result)
        self._given.set_result(self._shown)
        return await self._answer()

    async def close(self) -> None:
        """See `HookTurn`."""
        task = self._task
        if task is None or task.done():
            return
        task.cancel()
        await asyncio.wait((task,), timeout=CLOSE_S)
        if not task.done():
            get_logger().warning("middleware_not_ended", middleware=self.name, call_id=self._call.call_id)

    async def _answer(self) -> Answered:
        if self._answered is None:
            raise AssertionError("it is asked")
        try:
            async with asyncio.timeout(self.timeout_s):
                return Answered(await self._answered, _NOBODY)
        except TimeoutError:
            raise HookGoneError(Gone.TIMEOUT) from None

    async def _run(self, call: Call) -> None:
        try:
            try:
                # Its own coroutine, whatever it raises: even what cancels itself.
                returned = await self._loaded.run(call, self._go_on)
                answer: Answer = self._answer_of(returned)
            except Denied as exc:
                answer = Deny(str(exc.reason))
            self._settle(answer)
        except asyncio.CancelledError:
            self._fail()
            raise
        except Exception as exc:  # noqa: BLE001 - the operator's code; the call must end
            get_logger().error("middleware_failed", middleware=self.name, call_id=call.call_id, exc_info=exc)
            self._fail()

    def _go_on(self, arguments: Mapping[str, Any] | None = None) -> Awaitable[Result]:
        """What the middleware calls as `next`."""
        if self._given is not None:
            raise _MisusedError("`next` is for one call, and was called before")
        answer: Answer = Allow()
        if arguments is not None:
            answer = ChangeArguments(orjson.dumps(arguments).decode())
        self._given = asyncio.get_running_loop().create_future()
        self._settle(answer)
        return self._given

    def _answer_of(self, returned: object) -> Answer:
        shown = self._shown
        if self._given is None or shown is None:
            raise _MisusedError("it returned without `await next()`; raise Denied to end the call")
        if returned is shown:
            return Allow()
        if not isinstance(returned, Result):
            raise _MisusedError(f"it returned {type(returned).__name__} in place of a Result")
        if returned.failure != shown.failure:
            raise _MisusedError("it changed `failure`: raise Denied to withhold a result")
        if (returned.content, returned.details_json) == (shown.content, shown.details_json):
            return Allow() if returned.terminate == shown.terminate else ChangeResult(terminate=returned.terminate)
        blocks = tuple(
            Block(each.text, each.data, each.media_type, each.resource_uri, each.annotations)
            for each in returned.content
        )
        return ChangeResult(output=(blocks, returned.details_json), terminate=returned.terminate)

    def _settle(self, answer: Answer) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(answer)

    def _fail(self) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(HookGoneError(Gone.FAILED))


def _call(call: HookedCall, arguments_json: str) -> Call:
    return Call(
        call_id=call.call_id,
        tool=call.tool,
        plugin=call.plugin,
        side_effects=call.side_effects,
        idempotent=call.idempotent,
        caller=call.caller.name,
        authenticated_by=call.caller.authenticated_by.value,
        context=call.context.given(),
        arguments_json=arguments_json,
    )


def _result(result: HookedResult) -> Result:
    error = result.error
    return Result(
        content=tuple(
            Content(each.text, each.data, each.media_type, each.resource_uri, each.annotations)
            for each in result.content
        ),
        details_json=result.details_json,
        terminate=result.terminate,
        failure=None if error is None else Failure(error.code.value, error.message, error.retryable),
    )
