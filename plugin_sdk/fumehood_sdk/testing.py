"""Calls a plugin's tools inside the test's own process, without a sidecar or a sandbox.

```python
def test_total_is_the_sum():
    result = ToolTester(plugin).call("roll_dice", count=2, sides=6)
    assert result.error is None
    assert result.details["total"] == sum(result.details["dice"])
```

Arguments are checked, results written and exceptions turned into failures by the code that a worker runs. Whether a
tool keeps to its level only the sandbox shows: try it with `fumehood plugin dev`.
"""

from __future__ import annotations

import asyncio
import json
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import ValidationError, from_json, to_json

from fumehood_sdk.call import Call, Grants
from fumehood_sdk.content import Blob, Text
from fumehood_sdk.divergence import Divergence, Key, first_divergence
from fumehood_sdk.errors import HttpRefused, SecretRefused
from fumehood_sdk.http import HttpRequest, HttpResponse
from fumehood_sdk.plugin import Plugin
from fumehood_sdk.runtime import failures
from fumehood_sdk.runtime.execute import execute_call
from fumehood_sdk.runtime.interrupt import interrupt_call
from fumehood_sdk.tools.tool import Tool
from fumehood_sdk.wire.fields import bytes_field, encode_text
from fumehood_sdk.wire.plugin_frames import Failure, Sent
from fumehood_sdk.wire.recorded_values import RecordedValue
from fumehood_sdk.wire.sidecar_frames import CONTEXT_FIELDS

__all__ = ["CallError", "CallLog", "CallResult", "CallUpdate", "ReplayFailed", "RunningCall", "ToolTester", "replay"]

DEFAULT_TIMEOUT_S = 30.0
"""The sidecar's default of `timeout_s`."""
DEFAULT_OUTPUT_BYTES = 1024 * 1024
"""The sidecar's default of `output_bytes`."""
INTERRUPT_AFTER_S = 0.1
"""A synchronous tool that was cancelled has this long before `Cancelled` is raised in it."""
_METHODS: dict[str | None, tuple[str, ...]] = {"none": (), "read": ("GET", "HEAD"), "write": ("GET", "HEAD")}
_LEVELS = {1: "debug", 2: "info", 3: "warning", 4: "error"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallUpdate:
    """An update that the tool sent by `ctx.update()`."""

    message: str
    progress: float | None
    total: float | None
    data: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLog:
    """A line that `ctx.log` wrote; `level` is "debug", "info", "warning" or "error"."""

    level: str
    message: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallError:
    """Why a call failed, as the caller reads it."""

    message: str
    reason: str
    retryable: bool
    details: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """How a call ended."""

    details: Any
    """The structured output, read back from JSON. None where there is none."""
    content: tuple[Text | Blob, ...]
    """What is shown; the details as text where the tool gave no content."""
    terminate: bool
    updates: tuple[CallUpdate, ...]
    logs: tuple[CallLog, ...]
    error: CallError | None
    """None: the call did not fail."""


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
        sidecar = _SidecarCalls(secrets or {}, http)
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
        sink = _Sink()
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

    def __init__(self, call: Call, tool: Tool, sink: _Sink) -> None:
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
        content = tuple(Text(block) if isinstance(block, str) else Blob(*block) for block in blocks)
        if details_json and not content:
            content = (Text(details_json.decode()),)
        details = from_json(details_json) if details_json else None
        return CallResult(details=details, content=content, terminate=terminate, updates=updates, logs=logs, error=None)

    def _run(self) -> None:
        if self._tool.is_async:
            self._outcome = asyncio.run(self._run_async())
        else:
            self._begun.set()
            self._outcome = execute_call(self._call)
        with self._sink.lock:
            self._call.closed = True

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
        size = len(details_json) + sum(len(block if isinstance(block, str) else block[0]) for block in blocks)
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


class ReplayFailed(AssertionError):  # noqa: N818 - says what happened
    """Calls did not run as they were recorded. The message names each, with a diff."""


def replay(file: str | Path, plugin: Plugin) -> tuple[str, ...]:
    """Run the calls of a file of `fumehood journal replay RUN -o FILE` again, with what they took from outside.

    Nothing of that is asked for again: `ctx.now`, `ctx.side_effect`, `ctx.http` and `ctx.secret` give what they gave.
    What a tool does without `ctx` it does here too, since there is no sandbox.
    Returns the ids of the calls, all of which returned what they returned.

    Raises:
        ReplayFailed: at least one did not.
        LookupError: the plugin has no such tool.
        ValueError: the file is none.
    """
    with Path(file).open("rb") as lines:
        if json.loads(next(lines, b"null")) != {"fumehood_replay": 1}:
            raise ValueError(f"{file} is no file of recorded calls that this version reads")
        calls = [json.loads(line) for line in lines]
    problems = []
    for fields in calls:
        divergence = _replay_call(fields, plugin)
        if divergence is not None:
            problems.append(
                f"{fields['tool']} {fields['call_id']}: {divergence.kind}: {divergence.message}\n{divergence.diff}"
            )
    if problems:
        raise ReplayFailed("\n".join(problems))
    return tuple(fields["call_id"] for fields in calls)


def _replay_call(fields: dict[str, Any], plugin: Plugin) -> Divergence | None:
    values = [RecordedValue(*each) for each in fields["values"]]
    own = next((name for name in plugin.tools if fields["tool"].endswith(name)), fields["tool"])  # after a prefix
    name = fields["tool"] if fields["tool"] in plugin.tools else own
    tester = ToolTester(plugin, call_id=fields["call_id"], correlation=fields["context"])
    running = tester.start_replay(name, fields["arguments_json"].encode(), values)
    return first_divergence(values, running.asked(), _recorded_result(fields["result"]), _shown(running.result()))


def _recorded_result(result: dict[str, Any]) -> bytes:
    error = result["error"]
    if error is None:
        details = json.loads(result["details_json"]) if result["details_json"] else None
        return _sorted_json([result["content"], details, result["terminate"]])
    facts = {name: value for name, value in error["details"].items() if name != "reason"}
    return _sorted_json([error["message"], error["details"].get("reason", ""), error["retryable"], facts])


def _shown(result: CallResult) -> bytes:
    error = result.error
    if error is None:
        content = [
            {"text": each.text}
            if isinstance(each, Text)
            else {"data": b64encode(each.data).decode(), "media_type": each.media_type}
            for each in result.content
        ]
        return _sorted_json([content, result.details, result.terminate])
    return _sorted_json([error.message, error.reason, error.retryable, error.details])


def _sorted_json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


class _SidecarCalls:
    """A fake of the sidecar's secrets and HTTP, by its rules on levels and on what a tool requires."""

    def __init__(self, secrets: Mapping[str, str | bytes], http: Callable[[HttpRequest], HttpResponse] | None) -> None:
        self._secrets = secrets
        self._http = http

    def fetch_secret(self, call: Call, name: str) -> bytes:
        if f"secret:{name}" not in call.tool.declaration.requires:
            problem = f'the secret "{name}" is not granted to this tool: it takes requires=["secret:{name}"]'
            raise SecretRefused(problem, reason="secret_refused")
        if name not in self._secrets:
            raise SecretRefused(f'the test has no secret "{name}": secrets={{...}}', reason="secret_refused")
        value = self._secrets[name]
        return value.encode() if isinstance(value, str) else value

    async def fetch_secret_async(self, call: Call, name: str) -> bytes:
        return self.fetch_secret(call, name)

    def send_http(self, call: Call, request: HttpRequest) -> HttpResponse:
        level = call.tool.declaration.side_effects
        if request.method not in _METHODS.get(level, (request.method,)):
            problem = f"the method {request.method} is not allowed at the level {level}"
            raise HttpRefused(problem, reason="method_not_allowed")
        if self._http is None:
            raise HttpRefused("the test grants no host: http=function", reason="host_not_granted")
        response = self._http(request)
        if request.max_bytes is not None and len(response.content) > request.max_bytes:
            raise HttpRefused(f"the body is longer than {request.max_bytes} bytes", reason="response_too_large")
        return response

    async def send_http_async(self, call: Call, request: HttpRequest) -> HttpResponse:
        return self.send_http(call, request)


class _Sink:
    """A `CallSink` that keeps updates and log lines in lists."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.updates: list[CallUpdate] = []
        self.logs: list[CallLog] = []

    def write_update(
        self, call: Call, message: str, progress: float | None, total: float | None, data_json: bytes
    ) -> None:
        data = from_json(data_json) if data_json else None
        with self.lock:
            if not call.closed:
                self.updates.append(CallUpdate(message=message, progress=progress, total=total, data=data))
                self.changed.notify_all()

    def write_log(self, call: Call, level: int, message: str, fields_json: bytes) -> None:
        fields = from_json(fields_json) if fields_json else {}
        with self.lock:
            if not call.closed:
                self.logs.append(CallLog(level=_LEVELS[level], message=message, fields=fields))

    def write_values(self, call: Call, frames: bytes) -> None:
        """Nobody keeps them."""
