"""`Context`: a tool's handle on its running call."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from fumehood_sdk.call import MAX_LINE_BYTES, Call
from fumehood_sdk.errors import Cancelled
from fumehood_sdk.json_text import dumps
from fumehood_sdk.wire.plugin_frames import DEBUG, ERROR, INFO, WARNING
from fumehood_sdk.wire.sidecar_frames import decode_call_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime
    from random import Random
    from typing import Any

    from fumehood_sdk.http_client import Http


class Context:
    """One call, as its tool sees it. A parameter annotated `Context` receives it.

    It may be handed to other threads. What is said once the call has ended is dropped.
    """

    __slots__ = ("_call", "log")

    def __init__(self, call: Call) -> None:
        self._call = call
        self.log = ToolLog(call)
        """The plugin's log: `ctx.log.info("copied", files=3)`."""

    def update(
        self,
        message: str = "",
        *,
        progress: float | None = None,
        total: float | None = None,
        unit: str = "",
        data: object = None,
    ) -> None:
        """Say how the call is getting on. Waits while whoever reads it is slow, where no other call waits with it.

        Args:
            message: One line of what is being done; 8 KiB of it are kept.
            progress: How much is done, in a unit of the tool's own.
            total: How much there is to do, in the same unit.
            unit: What those count, such as "files"; 64 bytes of it are kept.
            data: Anything more, of types that JSON can hold.

        Raises:
            ValueError: `data` does not fit into a frame, or can't be written as JSON.
        """
        data_json = b"" if data is None else dumps(data)
        self._call.sink.write_update(self._call, _cut(message), progress, total, data_json, unit=unit)

    @property
    def cancelled(self) -> bool:
        """Whether the call is to end. Long loops look at it; async tools get `asyncio.CancelledError` as well."""
        return self._call.cancel_reason is not None

    def check_cancelled(self) -> None:
        """Raise `Cancelled` if the call is to end."""
        if self._call.cancel_reason is not None:
            raise Cancelled(self._call.cancel_reason)

    def sleep(self, seconds: float) -> None:
        """Sleep, and raise `Cancelled` as soon as the call is to end: `time.sleep` can't be woken.

        For synchronous tools; an async one uses `asyncio.sleep`.
        """
        woken = threading.Event()
        self._call.add_cancel_callback(woken.set)
        try:
            woken.wait(max(0.0, seconds))
        finally:
            self._call.cancel_callbacks.remove(woken.set)
        self.check_cancelled()

    @property
    def deadline(self) -> float:
        """When the call ends, on the clock of `time.monotonic()`."""
        return self._call.deadline

    @property
    def remaining_s(self) -> float:
        """How many seconds the call may still take. Never negative."""
        return max(0.0, self._call.deadline - time.monotonic())

    @property
    def attempt(self) -> int:
        """Which attempt of the call this is, from 1."""
        return self._call.attempt

    @property
    def call_id(self) -> str:
        """The call's id, the same over its attempts."""
        return self._call.call_id

    @property
    def idempotency_key(self) -> str:
        """A key that is equal for all attempts of one call and for no other call: hand it to services that take one."""
        return self._call.call_id

    @property
    def traceparent(self) -> str:
        """W3C `traceparent` of this attempt, to make spans beneath it and to hand on. Empty: calls are not traced."""
        return self._call.trace[0].decode()

    @property
    def tracestate(self) -> str:
        """W3C `tracestate` of the caller, to be handed on with `traceparent`. May be empty."""
        return self._call.trace[1].decode()

    @property
    def readable_paths(self) -> tuple[str, ...]:
        """Absolute paths that the operator lets this process read. The writable ones are not repeated here."""
        return self._call.grants.readable_paths

    @property
    def writable_paths(self) -> tuple[str, ...]:
        """Absolute paths of the folders that the operator lets this process read and write."""
        return self._call.grants.writable_paths

    def secret(self, name: str, /) -> str:
        """The value of a secret that the tool requires (`requires=["secret:NAME"]`), as it is now.

        Don't keep it beyond the call: the operator may change it.

        Raises:
            SecretRefused: it can't be had.
            UnicodeDecodeError: it is not text: `secret_bytes`.
            RuntimeError: this is an event loop's thread: await `asecret`.
        """
        return self.secret_bytes(name).decode()

    def secret_bytes(self, name: str, /) -> bytes:
        """The same as bytes."""
        from fumehood_sdk.outside_values import take_secret  # noqa: PLC0415 - most calls take nothing from outside

        call = self._call
        return take_secret(call, name, lambda: call.grants.sidecar().fetch_secret(call, name))

    async def asecret(self, name: str, /) -> str:
        """Like `secret`, for asynchronous tools."""
        return (await self.asecret_bytes(name)).decode()

    async def asecret_bytes(self, name: str, /) -> bytes:
        """The same as bytes."""
        from fumehood_sdk.outside_values import take_secret_async  # noqa: PLC0415 - most calls take nothing from outside

        call = self._call
        return await take_secret_async(call, name, lambda: call.grants.sidecar().fetch_secret_async(call, name))

    def now(self) -> datetime:
        """The time of day in UTC. It is recorded, and the same again when the call is replayed."""
        from fumehood_sdk.outside_values import take_now  # noqa: PLC0415 - most calls take nothing from outside

        return take_now(self._call)

    def random(self) -> Random:
        """The call's generator of random numbers, one for all of the call: `ctx.random().choice(...)`.

        It is seeded by the call's id, so that attempts and replays of the call draw the same numbers. Whoever knows the
        id knows them: never make keys or passwords of them, `secrets` and `side_effect` do that.
        """
        from fumehood_sdk.outside_values import draw  # noqa: PLC0415 - most calls take nothing from outside

        return draw(self._call)

    def side_effect(self, name: str, fn: Callable[[], Any], /) -> Any:  # noqa: ANN401 - anything that JSON can hold
        """Run a function that gives something else each time, and record what it gives.

        When the call is replayed, what was recorded is returned, or raised, and the function isn't run. What it takes
        by `now`, `http` and `secret` is not recorded beside it.

        Args:
            name: What it is called in the record; the same name may be used again.
            fn: Takes nothing, and returns what JSON can hold. Its exceptions are recorded and go on.

        Returns:
            What was returned, read back from JSON: a tuple becomes a list.

        Raises:
            ValueError: what was returned can't be written as JSON.
        """
        from fumehood_sdk.outside_values import take_side_effect  # noqa: PLC0415 - most calls take nothing from outside

        return take_side_effect(self._call, name, fn)

    async def aside_effect(self, name: str, fn: Callable[[], Awaitable[Any]], /) -> Any:  # noqa: ANN401
        """Like `side_effect`, for asynchronous tools: `fn` returns what is awaited."""
        from fumehood_sdk.outside_values import take_side_effect_async  # noqa: PLC0415 - most calls take nothing from outside

        return await take_side_effect_async(self._call, name, fn)

    @property
    def http(self) -> Http:
        """Requests to granted hosts: `ctx.http.get(url)`, in async tools `await ctx.http.aget(url)`."""
        from fumehood_sdk.http_client import Http  # noqa: PLC0415 - few tools need it

        return Http(self._call)

    @property
    def correlation(self) -> Correlation:
        """What the call belongs to, in the caller's words."""
        return Correlation(**decode_call_context(self._call.context))


class ToolLog:
    """Writes lines to the plugin's log that name the call. Fields are of types that JSON can hold."""

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call

    def debug(self, message: str, **fields: Any) -> None:  # noqa: ANN401 - anything that JSON can hold
        """Write a line at the level "debug"."""
        self._write(DEBUG, message, fields)

    def info(self, message: str, **fields: Any) -> None:  # noqa: ANN401
        """Write a line at the level "info"."""
        self._write(INFO, message, fields)

    def warning(self, message: str, **fields: Any) -> None:  # noqa: ANN401
        """Write a line at the level "warning"."""
        self._write(WARNING, message, fields)

    def error(self, message: str, **fields: Any) -> None:  # noqa: ANN401
        """Write a line at the level "error"."""
        self._write(ERROR, message, fields)

    def _write(self, level: int, message: str, fields: dict[str, Any]) -> None:
        self._call.sink.write_log(self._call, level, _cut(message), dumps(fields) if fields else b"")


class Correlation:
    """What a call belongs to, as the caller said it. Unset fields are empty."""

    __slots__ = (
        "caused_by",
        "parent_span_id",
        "request_id",
        "session_id",
        "span_id",
        "step_name",
        "trace_id",
        "turn_id",
    )

    def __init__(
        self,
        *,
        request_id: str = "",
        session_id: str = "",
        trace_id: str = "",
        span_id: str = "",
        parent_span_id: str = "",
        turn_id: str = "",
        step_name: str = "",
        caused_by: str = "",
    ) -> None:
        self.request_id = request_id
        self.session_id = session_id
        self.trace_id = trace_id
        self.span_id = span_id
        self.parent_span_id = parent_span_id
        self.turn_id = turn_id
        self.step_name = step_name
        self.caused_by = caused_by


def _cut(message: str) -> str:
    """What is kept of a line. Cut by characters, which are no more than its bytes; the sidecar cuts the rest."""
    return message if len(message) <= MAX_LINE_BYTES else message[:MAX_LINE_BYTES]
