"""Runs a tool in the test's own process, by the code that a worker runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import ValidationError, from_json, to_json

from fumehood_sdk.call import Call, Grants
from fumehood_sdk.content import Blob, Text
from fumehood_sdk.divergence import Key
from fumehood_sdk.http import HttpRequest, HttpResponse
from fumehood_sdk.plugin import Plugin
from fumehood_sdk.runtime import failures
from fumehood_sdk.runtime.execute import execute_call
from fumehood_sdk.runtime.interrupt import interrupt_call
from fumehood_sdk.testing.fakes import CollectingSink, FakeSidecar
from fumehood_sdk.testing.results import CallError, CallResult, CallUpdate
from fumehood_sdk.tools.tool import Tool
from fumehood_sdk.wire.fields import bytes_field, encode_text
from fumehood_sdk.wire.plugin_frames import Block, DescribedBlock, Failure, Sent
from fumehood_sdk.wire.recorded_values import RecordedValue
from fumehood_sdk.wire.sidecar_frames import CONTEXT_FIELDS

DEFAULT_TIMEOUT_S = 30.0
"""The sidecar's default of `timeout_s`."""
DEFAULT_OUTPUT_BYTES = 1024 * 1024
"""The sidecar's default of `output_bytes`."""
INTERRUPT_AFTER_S = 0.1
"""A synchronous tool that was cancelled has this long before `Cancelled` is raised in it."""


class ToolTester:
    """Calls the tools of one plugin. Each call sees what is set here."""

    def __init__(
        self,
        plugin: Plugin,
        *,
        timeout_s: float | None = None,
        attempt: int = 1,
        call_id: str = "test-call",
        readable_paths: Sequence[str] = (),
        writable_paths: Sequence[str] = (),
        correlation: dict[str, str] | None = None,
        secrets: Mapping[str, str | bytes] | None = None,
        http: Callable[[HttpRequest], HttpResponse] | None = None,
    ) -> None:
        """Set what calls see.

        Args:
            plugin: The plugin.
            timeout_s: What `ctx.deadline` is made of. None: the tool's own, or 30. Nothing ends the call then: that is
                the sidecar's part.
            attempt: `ctx.attempt`.
            call_id: `ctx.call_id`.
            readable_paths: `ctx.readable_paths`.
            writable_paths: `ctx.writable_paths`.
            correlation: Fields of `ctx.correlation`, such as {"request_id": "r-1"}.
            secrets: What `ctx.secret` gives, by name. A tool gets those that it requires.
            http: Answers what `ctx.http` asks, or raises `HttpRefused` or `HttpFailed`. None: no host is granted. The
                methods that the tool's level doesn't allow are refused before it is asked.
        """
        self._plugin = plugin
        self._timeout_s = timeout_s
        self._attempt = attempt
        self._call_id = call_id
        self._grants = Grants(tuple(map(str, readable_paths)), tuple(map(str, writable_paths)))
        sidecar = FakeSidecar(secrets or {}, http)
        self._grants.sidecar = lambda: sidecar
        self._context = b"".join(
            bytes_field(CONTEXT_FIELDS.index(name) + 1 << 3 | 2, encode_text(value))
            for name, value in (correlation or {}).items()
        )

    def call(self, tool: str, /, **arguments: Any) -> CallResult:  # noqa: ANN401 - anything that JSON can hold
        """Call a tool and wait for its result.

        Raises:
            LookupError: the plugin has no such tool.
        """
        return self.start(tool, **arguments).result()

    def call_json(self, tool: str, arguments_json: str | bytes, /) -> CallResult:
        """Call a tool with arguments as JSON text, right or wrong, and wait for its result.

        Raises:
            LookupError: the plugin has no such tool.
        """
        return self._start(
            tool, arguments_json.encode() if isinstance(arguments_json, str) else arguments_json
        ).result()

    def start(self, tool: str, /, **arguments: Any) -> RunningCall:  # noqa: ANN401
        """Call a tool and return while it runs.

        Raises:
            LookupError: the plugin has no such tool.
        """
        return self._start(tool, to_json(arguments))

    def start_replay(self, tool: str, arguments_json: bytes, values: Sequence[RecordedValue], /) -> RunningCall:
        """Call a tool with what it took from outside when it was recorded; see `replay`.

        Raises:
            LookupError: the plugin has no such tool.
        """
        return self._start(tool, arguments_json, values)

    def _start(self, name: str, arguments_json: bytes, values: Sequence[RecordedValue] | None = None) -> RunningCall:
        tool = self._plugin.tools.get(name)
        if tool is None:
            raise LookupError(
                f"plugin {self._plugin.name} has no tool {name!r}; it has {', '.join(self._plugin.tools)}"
            )
        sink = CollectingSink()
        call = Call(
            1,
            tool,
            arguments_json,
            sink,
            call_id=self._call_id,
            attempt=self._attempt,
            timeout_s=self._timeout_s or tool.declaration.timeout_s or DEFAULT_TIMEOUT_S,
            context=self._context,
            grants=self._grants,
            replay=values,
        )
        return RunningCall(call, tool, sink)


class RunningCall:
    """A call under way, in a thread of its own. Made by `ToolTester.start`."""

    def __init__(self, call: Call, tool: Tool, sink: CollectingSink) -> None:
        self._call = call
        self._tool = tool
        self._sink = sink
        self._outcome: Sent | Failure = Failure("the call's thread died", "exception")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"call of {tool.name}", daemon=True)
        self._thread.start()

    def cancel(self, reason: str = "caller") -> None:
        """Cancel the call, as the sidecar would. `result` tells how it ended."""
        self._begun.wait()
        self._call.cancel(reason)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._call.task.cancel)
            return
        self._thread.join(INTERRUPT_AFTER_S)
        while self._thread.is_alive() and not interrupt_call(self._call, self._sink.lock):
            pass

    def wait_for_update(self, count: int = 1, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> CallUpdate:
        """Wait until the tool has sent that many updates. Returns the last of those.

        Raises:
            TimeoutError: it has not.
        """
        with self._sink.changed:
            if not self._sink.changed.wait_for(lambda: len(self._sink.updates) >= count, timeout_s):
                raise TimeoutError(f"{len(self._sink.updates)} of {count} updates came within {timeout_s} s")
            return self._sink.updates[count - 1]

    def asked(self, *, timeout_s: float = 60.0) -> list[Key]:
        """In a replay: wait for the call's end. Returns what it asked for from outside, in order."""
        self._thread.join(timeout_s)
        return [] if self._call.recording is None else self._call.recording.asked

    def result(self, *, timeout_s: float = 60.0) -> CallResult:
        """Wait for the call's end.

        Raises:
            TimeoutError: it goes on.
        """
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"{self._tool.name} goes on after {timeout_s} s")
        outcome = self._checked(self._outcome)
        updates, logs = tuple(self._sink.updates), tuple(self._sink.logs)
        if isinstance(outcome, Failure):
            error = CallError(
                message=outcome.message,
                reason=outcome.reason,
                retryable=outcome.retryable,
                details=from_json(outcome.details_json) if outcome.details_json else {},
            )
            return CallResult(
                details=None, content=(Text(outcome.message),), terminate=False, updates=updates, logs=logs, error=error
            )
        blocks, details_json, terminate = outcome
        content = tuple(map(_shown, blocks))
        if details_json and not content:
            content = (Text(details_json.decode()),)
        details = from_json(details_json) if details_json else None
        return CallResult(details=details, content=content, terminate=terminate, updates=updates, logs=logs, error=None)

    def _run(self) -> None:
        failure = self._prepare()
        if failure is not None:
            self._begun.set()
            self._outcome = failure
        elif self._tool.is_async:
            self._outcome = asyncio.run(self._run_async())
        else:
            self._begun.set()
            self._outcome = execute_call(self._call)
        with self._sink.lock:
            self._call.closed = True

    def _prepare(self) -> Failure | None:
        """Have the tool prepare what it is called with, as the sidecar does. A replay has that behind it."""
        preparation = self._tool.preparation
        if preparation is not None and self._call.replay is None:
            try:
                self._call.arguments_json = preparation.prepare(self._call.arguments_json or b"{}")
            except Exception as error:  # noqa: BLE001 - as a worker does
                return failures.describe_exception(self._call, error)
        return None

    async def _run_async(self) -> Sent | Failure:
        self._loop = asyncio.get_running_loop()
        self._call.task = asyncio.create_task(self._invoke_async())
        outcome: Sent | Failure = await self._call.task
        return outcome

    async def _invoke_async(self) -> Sent | Failure:
        self._begun.set()
        try:
            return await self._tool.invoke_async(self._call)
        except BaseException as error:  # noqa: BLE001 - as a worker does
            return failures.describe_exception(self._call, error)

    def _checked(self, outcome: Sent | Failure) -> Sent | Failure:
        """What the sidecar checks of a result: its size, and its details against the output schema."""
        if isinstance(outcome, Failure):
            return outcome
        blocks, details_json, _ = outcome
        size = len(details_json) + sum(_size(block) for block in blocks)
        limit = self._tool.declaration.limits.get("output_bytes", DEFAULT_OUTPUT_BYTES)
        if size > limit:
            return failures.output_too_large(size, limit)
        if not self._tool.output_schema_json:
            return outcome
        adapter: TypeAdapter[Any] = TypeAdapter(self._tool.output_annotation)
        if adapter.json_schema(mode="validation") != adapter.json_schema(mode="serialization"):
            return outcome  # what is written is not what would be read: pydantic can't check it
        try:
            adapter.validate_json(details_json or b"null", strict=True)
        except ValidationError as error:
            return Failure(f"the tool's result does not fit its return type: {error}", "invalid_output")
        return outcome


def _shown(block: Block) -> Text | Blob:
    if isinstance(block, str):
        return Text(block)
    if not isinstance(block, DescribedBlock):
        return Blob(*block)
    held, uri, annotations = block.block, block.resource_uri, block.annotations
    if isinstance(held, str):
        return Text(held, media_type=block.text_media_type, resource_uri=uri, annotations=annotations)
    return Blob(*held, resource_uri=uri, annotations=annotations)


def _size(block: Block) -> int:
    if isinstance(block, DescribedBlock):
        return _size(block.block) + len(block.resource_uri)
    return len(block if isinstance(block, str) else block[0])
