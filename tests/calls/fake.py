"""A worker with fault knobs, for the executor's policy. What processes really do is tested through the real sidecar."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fumehood_sandbox import Executable, Level, Policy, Receipt
from fumehood_server.calls import Call, Entry, Executor
from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.call import Block, CallContext, CallError, CallOutcome, CallRequest, CallUpdate
from fumehood_server.model.plugin import RegisteredTool, WorkerSpec
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import ExecutionMode, Permission, Reason, ToolDefinition
from fumehood_server.model.worker import CancelReason, Invocation, InvocationResult, Used, WorkerInfo

RECEIPT = Receipt(level=Level.NONE, backend="bubblewrap", policy_digest="sha256:0", layers=())

Log = Callable[[], list[dict[str, object]]]
"""The lines of the log so far."""

USED = Used(cpu_s=0.25, peak_memory_bytes=4096, source="cgroup2")


BOUND_S = 60.0


async def outcome_of(executor: Executor, **more: object) -> CallOutcome:
    """How a call of `request(**more)` ends."""
    return await ended(executor.start(request(**more)))  # type: ignore[arg-type] # its own keywords


async def ended(call: Call) -> CallOutcome:
    async with asyncio.timeout(BOUND_S):
        return await call.outcome()


def code_of(outcome: CallOutcome) -> Code:
    assert outcome.error is not None
    assert outcome.content[0].text, "a failure says something to a model"
    return outcome.error.code


def answered(text: str = "", *, details_json: str = "", error: CallError | None = None) -> InvocationResult:
    content = (Block(text=text),) if text else ()
    size = len(text.encode()) + len(details_json.encode())
    return InvocationResult(content=content, details_json=details_json, terminate=False, error=error, output_bytes=size)


class FakeAttempt:
    """One attempt. `resolve` is the knob that ends it."""

    def __init__(self, invocation: Invocation, worker: FakeWorker) -> None:
        self.invocation = invocation
        self.reasons: list[CancelReason] = []
        """Why it was to end."""
        self._result: asyncio.Future[InvocationResult] = asyncio.get_running_loop().create_future()
        self._worker = worker
        self.updates = 0
        self.holds: list[bool] = []

    @property
    def ended(self) -> bool:
        return self._result.done()

    async def result(self) -> InvocationResult:
        return await asyncio.shield(self._result)

    async def end(self, reason: CancelReason) -> InvocationResult:
        if not self.ended:
            self.reasons.append(reason)
            self._worker.was_told()
            if not self._worker.ignores_end:
                details = {"ended_by": "cancel_frame"}
                self.resolve(answered(error=CallError(code=Code.CANCELLED_SIGNAL, message="ended", details=details)))
        return await self.result()

    def hold_updates(self, held: bool, /) -> None:
        self.holds.append(held)

    def resolve(self, result: InvocationResult) -> None:
        self._result.set_result(replace(result, used=USED))

    def update(self, message: str, sequence: int) -> None:
        self.updates += 1
        if self.invocation.on_update is not None:
            self.invocation.on_update(CallUpdate(message=message, sequence=sequence))


@dataclass
class FakeWorker:
    """Answers at once with `answer`, or leaves the attempt open when that is None."""

    answer: Callable[[Invocation], InvocationResult] | None = None
    ignores_end: bool = False
    worker_id: str = "fake-1"
    receipt: Receipt = RECEIPT
    attempts: list[FakeAttempt] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def invoked(self, count: int) -> None:
        """Return once so many attempts have begun."""
        await self._until(lambda: len(self.attempts) >= count)

    def was_told(self) -> None:
        self._changed.set()

    async def told(self, count: int) -> None:
        """Return once so many attempts were told to end."""
        await self._until(lambda: sum(bool(each.reasons) for each in self.attempts) >= count)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def invoke(self, invocation: Invocation) -> FakeAttempt:
        attempt = FakeAttempt(invocation, self)
        self.attempts.append(attempt)
        self._changed.set()
        if self.answer is not None:
            attempt.resolve(self.answer(invocation))
        return attempt


class FakeLease:
    def __init__(self, pools: FakePools) -> None:
        self._pools: FakePools | None = pools
        self.worker = pools.worker

    def release(self) -> None:
        if self._pools is not None:
            self._pools.leases -= 1
            self._pools = None


@dataclass
class FakePools:
    """One worker. `cold` makes a call wait until `warm` is set; `error` is what waiting ends with."""

    worker: FakeWorker = field(default_factory=FakeWorker)
    cold: bool = False
    error: CallError | None = None
    warm: asyncio.Event = field(default_factory=asyncio.Event)
    leases: int = 0

    def try_acquire(self, _spec: WorkerSpec) -> FakeLease | None:
        return None if self.cold else self._lease()

    async def acquire(self, _spec: WorkerSpec) -> FakeLease:
        if self.error is not None:
            raise WorkerUnavailableError(self.error)
        await self.warm.wait()
        return self._lease()

    def workers(self) -> tuple[WorkerInfo, ...]:
        return ()

    async def retire(self, _keys: frozenset[str]) -> None:
        return None

    def _lease(self) -> FakeLease:
        self.leases += 1
        return FakeLease(self)


SPEC = WorkerSpec(
    key="key",
    plugin="fake",
    plugin_digest="sha256:1",
    policy=Policy(level=Level.NONE),
    program=Executable(("/bin/true",)),
    output_bytes=1000,
    max_workers=1,
)

SCHEMA = (
    '{"type":"object","properties":{"text":{"type":"string"},"count":{"type":"integer"},'
    '"ratio":{"anyOf":[{"type":"number"},{"type":"null"}]},"loud":{"type":"boolean"}},'
    '"required":["text"],"additionalProperties":false}'
)


def tool(
    name: str = "echo",
    *,
    schema: str = SCHEMA,
    output_schema: str = "",
    level: Level = Level.NONE,
    permission: Permission = Permission.ALLOW,
    timeout_s: float = 30.0,
    mode: ExecutionMode = ExecutionMode.PARALLEL,
    idempotent: bool = False,
    reasons: tuple[Reason, ...] = (),
    runnable: bool = True,
) -> RegisteredTool:
    definition = ToolDefinition(
        name=name,
        description="Says it again.",
        input_schema_json=schema,
        output_schema_json=output_schema,
        side_effects=level,
        idempotent=idempotent,
        timeout_s=timeout_s,
        execution_mode=mode,
    )
    spec = replace(SPEC, policy=Policy(level=level)) if runnable else None
    return RegisteredTool(
        definition=definition,
        definition_digest=f"sha256:{hash((schema, output_schema)):x}",
        plugin="fake",
        plugin_version="1",
        permission=permission,
        timeout_s=timeout_s,
        spec=spec,
        reasons=reasons,
    )


@dataclass
class FakeTools:
    tools: tuple[RegisteredTool, ...]

    async def look_for_programs(self) -> None:
        pass

    def find(self, name: str) -> RegisteredTool | None:
        return next((each for each in self.tools if each.definition.name == name), None)


def request(
    arguments_json: str = '{"text":"hi"}',
    *,
    name: str = "echo",
    call_id: str = "c1",
    timeout_s: float | None = None,
    caller_deadline: float | None = None,
    caller: str = "unix:",
) -> CallRequest:
    return CallRequest(
        call_id=call_id,
        tool=name,
        arguments_json=arguments_json,
        context=CallContext(request_id="r1"),
        timeout_s=timeout_s,
        caller_deadline=caller_deadline,
        caller=caller,
    )


def listen(call: Call, said: list[Entry] | None = None) -> list[Entry]:
    """What the call's tool says from now on."""
    said = [] if said is None else said
    reader = call.updates.read(lambda: said.append(reader.take()))
    return said
