"""The validator process: what is large is validated there, and whatever happens to it is one call's error."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fumehood_sandbox import Level
from fumehood_server.calls import Call, Executor
from fumehood_server.calls.deadlines import Bound, Deadline
from fumehood_server.calls.documents import Cause, DocumentChecks, NoVerdictError
from fumehood_server.calls.errors import EndedEarlyError
from fumehood_server.calls.steps.validate import validate
from fumehood_server.journal.off import NO_JOURNAL
from fumehood_server.model.call import CallOutcome, CallRequest
from fumehood_server.model.caller import Caller
from fumehood_server.model.taxonomy import Code
from fumehood_server.telemetry import get_logger
from fumehood_server.validation.budget import PROCESS
from fumehood_server.validation.documents import MAX_FAULTS, Accepted, Document, Kind, Rejected, Verdict, check
from fumehood_server.validation.schemas import Validators

from tests.calls.fake import BOUND_S, FakePools, FakeTools, FakeWorker, answered, code_of, ended, request, tool
from tests.loop_steps import least_s

OBJECT = '{"type":"object"}'
POINTS = '{"type":"object","properties":{"points":{"items":{"type":"array","items":{"type":"integer"}}}}}'
ROWS = '{"type":"object","properties":{"points":{"items":{"properties":{"d":{"default":1},"n":{"type":"integer"}}}}}}'
MEBIBYTE = 1 << 20


def items(unit: str, *, size: int = MEBIBYTE) -> str:
    return '{"points":[' + ",".join([unit] * ((size - 16) // (len(unit) + 1))) + "]}"


def document(text: str, schema: str = OBJECT, *, kind: Kind = Kind.ARGUMENTS) -> Document:
    return Document(kind, f"sha256:{hash(schema):x}", schema, text)


SMALL = document('{"n":1}')


@pytest.fixture
async def checks() -> AsyncIterator[DocumentChecks]:
    """With a process that has started."""
    async with DocumentChecks(get_logger()) as checks:
        await checks.check_beside(("fixture",), SMALL)
        yield checks


def process_of(checks: DocumentChecks) -> int:
    assert checks.pid is not None
    return checks.pid


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110 - of the kernel's, or ours within the next steps of the loop
            await asyncio.sleep(0.001)


async def verdict(waiting: Coroutine[Any, Any, Verdict]) -> Verdict | Cause:
    """How a check ends."""
    try:
        async with asyncio.timeout(BOUND_S):
            return await waiting
    except NoVerdictError as exc:
        return exc.cause


async def test_a_mebibyte_of_the_worst_shapes_takes_the_sidecar_no_20_ms(checks: DocumentChecks) -> None:
    points = document(items("[1,2]"), POINTS)
    assert points.text.count("[") > 100_000
    # As on a thread of its own, which keeps the interpreter's lock.
    begin = time.process_time()
    assert check(points, Validators(), PROCESS) == Accepted(points.text)
    here_s = time.process_time() - begin
    assert here_s > 0.02
    for each in (points, document(items('{"n":1.0}'), ROWS)):

        async def checked_s(which: Document = each) -> float:
            begin = time.process_time()
            assert isinstance(await checks.check_beside(("me",), which), Accepted)
            return time.process_time() - begin

        assert await least_s(checked_s) < max(0.02, here_s / 10)  # of which a slow machine makes more than 20 ms


async def test_the_process_finds_what_the_loop_finds(checks: DocumentChecks) -> None:
    schema = '{"type":"object","properties":{"n":{"type":"integer"},"d":{"default":"ü"}},"required":["n"]}'
    for text in ('{"n":5.0}', '{"n":"5"}', '{"m":1}', "[", '{"n":1,"n":2}', '{"n":1,"d":"\U0001f600"}'):
        for kind in (Kind.ARGUMENTS, Kind.OUTPUT):
            both = document(text, schema, kind=kind)
            assert (
                await checks.check_beside(("me",), both) == await checks.check(("me",), both) == checks.check_now(both)
            )
    unusable = document("{}", '{"type":"object","$ref":"#/nowhere"}')
    assert await checks.check_beside(("me",), unusable) == await checks.check(("me",), unusable)


@pytest.mark.parametrize("kind", [Kind.ARGUMENTS, Kind.OUTPUT])
async def test_the_longest_list_of_faults_is_an_answer(checks: DocumentChecks, kind: Kind) -> None:
    names = [chr(0x1F600 + number) * 300 for number in range(40)]
    closed = '{"type":"object","additionalProperties":{"enum":[]}}'
    verdict = await checks.check_beside(("me",), document(json.dumps(dict.fromkeys(names, 1)), closed, kind=kind))
    assert isinstance(verdict, Rejected)
    assert len(verdict.faults) == MAX_FAULTS
    assert min(len(each["pointer"].encode()) for each in verdict.faults) > 1_000


@pytest.mark.parametrize(
    ("number", "cause"),
    [(signal.SIGKILL, Cause.DIED), (signal.SIGPROF, Cause.TIME), (signal.SIGABRT, Cause.MEMORY)],
)
async def test_its_end_fails_one_document_and_another_process_takes_the_rest(
    checks: DocumentChecks, number: signal.Signals, cause: Cause
) -> None:
    before = process_of(checks)
    os.kill(before, signal.SIGSTOP)
    first = asyncio.create_task(verdict(checks.check_beside(("a",), SMALL)))
    rest = [asyncio.create_task(verdict(checks.check_beside(("a",), SMALL))) for _ in range(3)]
    await until(lambda: checks.busy)
    os.kill(before, number)
    os.kill(before, signal.SIGCONT)
    assert await first is cause
    assert [await each for each in rest] == [Accepted(SMALL.text)] * 3
    assert process_of(checks) != before


async def test_memory_beyond_its_bound_ends_one_document(checks: DocumentChecks) -> None:
    assert isinstance(await verdict(checks.check_beside(("a",), document(items("[]")))), Accepted)
    size = int(Path(f"/proc/{checks.pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(process_of(checks), resource.RLIMIT_AS, (size + MEBIBYTE, size + MEBIBYTE))
    assert await verdict(checks.check_beside(("a",), document(items("[]", size=3 * MEBIBYTE)))) is Cause.MEMORY
    assert isinstance(await verdict(checks.check_beside(("a",), document(items("[]")))), Accepted)


async def test_a_document_that_takes_too_long_is_ended() -> None:
    async with DocumentChecks(get_logger(), document_s=0.5) as checks:
        while isinstance(await verdict(checks.check_beside(("a",), SMALL)), Cause):
            pass  # a busy machine may take longer to start it
        os.kill(process_of(checks), signal.SIGSTOP)
        assert await verdict(checks.check_beside(("a",), SMALL)) is Cause.TIME
        assert checks.pid is None


async def test_callers_take_turns(checks: DocumentChecks) -> None:
    order: list[str] = []

    async def one(caller: str) -> None:
        await checks.check_beside((caller,), SMALL)
        order.append(caller)

    os.kill(process_of(checks), signal.SIGSTOP)
    async with asyncio.TaskGroup() as tasks:
        for caller in ["many"] * 50 + ["few"] * 2:
            tasks.create_task(one(caller))
        await asyncio.sleep(0)
        os.kill(process_of(checks), signal.SIGCONT)
    assert order[:5].count("few") == 2
    assert len(order) == 52


async def test_the_canonical_hash_is_the_same_here_and_there_and_only_where_it_is_wanted() -> None:
    text = '{"b": 1.0, "a": "\u00e9"}'
    expected = hashlib.sha256('{"a":"\u00e9","b":1}'.encode()).hexdigest()
    async with DocumentChecks(get_logger()) as checks:
        for hashed in (True, False):
            document = replace(SMALL, text=text, schema_json="", hashed=hashed)
            here, there = checks.check_now(document), await verdict(checks.check_beside(("a",), document))
            assert isinstance(here, Accepted)
            assert isinstance(there, Accepted)
            assert here.canonical_sha256 == there.canonical_sha256 == (expected if hashed else "")


async def test_a_wait_that_is_cancelled_leaves_the_others_theirs(checks: DocumentChecks) -> None:
    before = process_of(checks)
    os.kill(before, signal.SIGSTOP)
    begun, waiting, other = (asyncio.create_task(checks.check_beside(("a",), SMALL)) for _ in range(3))
    await until(lambda: checks.busy)
    begun.cancel()
    waiting.cancel()
    os.kill(before, signal.SIGCONT)
    assert await other == Accepted(SMALL.text)
    assert begun.cancelled()
    assert waiting.cancelled()
    assert process_of(checks) == before


async def test_it_has_no_environment_and_no_descriptor_but_its_socket(checks: DocumentChecks) -> None:
    folder = Path(f"/proc/{checks.pid}")
    assert os.environ
    assert (folder / "environ").read_bytes() == b""
    targets = {each.name: str(each.readlink()) for each in (folder / "fd").iterdir()}
    assert targets.pop("0").startswith("socket:")
    assert targets == {"1": "/dev/null", "2": "/dev/null"}


async def test_it_ends_when_it_is_idle_and_when_nobody_checks_any_more() -> None:
    async with DocumentChecks(get_logger(), idle_s=0.01) as checks:
        for _ in range(2):
            assert await verdict(checks.check_beside(("a",), SMALL)) == Accepted(SMALL.text)
            await until(lambda: checks.pid is None)
    async with DocumentChecks(get_logger()) as checks:
        await checks.check_beside(("a",), SMALL)
        pid = process_of(checks)
        os.kill(pid, signal.SIGSTOP)
    assert not Path(f"/proc/{pid}").exists()


async def test_a_process_that_was_killed_while_it_was_idle_costs_no_document(checks: DocumentChecks) -> None:
    before = process_of(checks)
    os.kill(before, signal.SIGKILL)
    await until(lambda: Path(f"/proc/{before}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    assert await verdict(checks.check_beside(("a",), SMALL)) == Accepted(SMALL.text)
    assert process_of(checks) != before


# Calls.

LARGE = '{"text":"' + "x" * 100_000 + '"}'


async def one_call_whose_process_ends(executor: Executor, arguments: str, number: signal.Signals) -> CallOutcome:
    """Its process is stopped before, and ended by a signal when it has the document."""
    checks = executor._needs.checks
    await checks.check_beside(("warm",), SMALL)
    pid = process_of(checks)
    os.kill(pid, signal.SIGSTOP)
    call = executor.start(request(arguments))
    await until(lambda: checks.busy)
    os.kill(pid, number)
    os.kill(pid, signal.SIGCONT)
    return await ended(call)


async def test_a_call_whose_arguments_end_the_process_may_be_called_again(executor: Executor) -> None:
    outcome = await one_call_whose_process_ends(executor, LARGE, signal.SIGKILL)
    assert code_of(outcome) is Code.TOOL_UNAVAILABLE
    assert outcome.error is not None
    assert outcome.error.retryable
    assert outcome.error.details["phase"] == "validate"


@pytest.mark.parametrize(
    ("number", "limit"), [(signal.SIGPROF, "validation_cpu_s"), (signal.SIGABRT, "validation_memory_bytes")]
)
async def test_a_call_whose_arguments_are_too_much_is_told_which_limit(
    executor: Executor, number: signal.Signals, limit: str
) -> None:
    outcome = await one_call_whose_process_ends(executor, LARGE, number)
    assert code_of(outcome) is Code.TOOL_RESOURCE_EXHAUSTED
    assert outcome.error is not None
    assert outcome.error.details["limit"] == limit


@pytest.mark.parametrize("level", [Level.READ, Level.WRITE])
async def test_a_result_without_a_verdict_says_that_the_tool_has_run(
    worker: FakeWorker, pools: FakePools, level: Level
) -> None:
    worker.answer = lambda _: answered(details_json=LARGE)
    roomy = tool(output_schema=OBJECT, level=level)
    assert roomy.spec is not None
    roomy = replace(roomy, spec=replace(roomy.spec, output_bytes=len(LARGE)))
    async with Executor(FakeTools((roomy,)), pools, journal=NO_JOURNAL, max_concurrent_calls=4) as executor:
        outcome = await one_call_whose_process_ends(executor, '{"text":"hi"}', signal.SIGKILL)
        fine = await ended(executor.start(request()))
    assert code_of(outcome) is Code.TOOL_UNAVAILABLE
    assert outcome.error is not None
    assert outcome.error.details["tool_finished"]
    assert outcome.error.retryable == (level is Level.READ)
    assert (fine.error, fine.details_json) == (None, LARGE)


async def test_a_call_that_waits_for_its_verdict_meets_its_deadline_and_is_cancelled(executor: Executor) -> None:
    checks = executor._needs.checks
    await checks.check_beside(("warm",), SMALL)
    os.kill(process_of(checks), signal.SIGSTOP)
    late = executor.start(request(LARGE, timeout_s=0.25, call_id="late"))
    cancelled = executor.start(request(LARGE, call_id="cancelled"))
    outcome = await ended(late)
    assert code_of(outcome) is Code.TOOL_TIMEOUT
    assert outcome.error is not None
    assert "not validated within 0.25 s, the timeout of the request" in outcome.error.message
    executor.cancel("cancelled")
    assert code_of(await ended(cancelled)) is Code.CANCELLED_SIGNAL


@pytest.mark.parametrize(
    ("kind", "bound", "words"),
    [
        (Kind.ARGUMENTS, Bound.WAIT, "The arguments of echo were not validated within 0.01 s: large documents"),
        (Kind.OUTPUT, Bound.WAIT, "echo has run, but its output was not validated within 0.01 s: large documents"),
        (Kind.ARGUMENTS, Bound.CALLER, "The arguments of echo were not validated before the caller's deadline: large"),
    ],
)
async def test_a_turn_that_does_not_come_is_not_told_as_a_worker_that_does_not(
    checks: DocumentChecks, kind: Kind, bound: Bound, words: str
) -> None:
    os.kill(process_of(checks), signal.SIGSTOP)
    call = Call(request())
    with pytest.raises(EndedEarlyError) as caught:
        await validate(call, tool(), document(LARGE, kind=kind), checks, Deadline(time.monotonic() + 0.01, bound, 0.01))
    os.kill(process_of(checks), signal.SIGCONT)
    assert caught.value.error.message.startswith(words)
    assert caught.value.error.details["phase"] == "validate"


async def test_a_result_that_is_not_validated_in_time_says_that_the_tool_has_run(
    worker: FakeWorker, pools: FakePools
) -> None:
    worker.answer = lambda _: answered(details_json=LARGE)
    roomy = tool(output_schema=OBJECT, level=Level.WRITE)
    assert roomy.spec is not None
    roomy = replace(roomy, spec=replace(roomy.spec, output_bytes=len(LARGE)))
    async with Executor(FakeTools((roomy,)), pools, journal=NO_JOURNAL, max_concurrent_calls=4) as executor:
        await executor._needs.checks.check_beside(("warm",), SMALL)
        os.kill(process_of(executor._needs.checks), signal.SIGSTOP)
        late = await ended(executor.start(request(timeout_s=0.25)))
        os.kill(process_of(executor._needs.checks), signal.SIGCONT)
        fine = await ended(executor.start(request()))
    assert late.error is not None
    assert (late.error.code, late.error.retryable) == (Code.TOOL_TIMEOUT, False)
    assert late.error.message.startswith("echo has run, but its output was not validated within 0.25 s, the timeout")
    assert late.error.details["tool_finished"]
    assert (fine.error, fine.details_json) == (None, LARGE)


def large_call(call_id: str, connection: str, *, name: str = "", tool: str = "echo") -> CallRequest:
    caller = Caller(name=name, connection=connection)
    return replace(request(LARGE, call_id=call_id, name=tool), caller=caller.recorded, identity=caller)


async def test_many_connections_and_tools_with_large_arguments_let_other_callers_in(
    pools: FakePools, worker: FakeWorker
) -> None:
    worker.answer = lambda _: answered("done")
    flood = [large_call(f"tcp-{index}", f"ipv4:127.0.0.1:{index}") for index in range(20)]
    flood += [large_call(f"tool-{index}", "ipv4:10.0.0.1:9", name="flood", tool=f"t{index}") for index in range(20)]
    few = [large_call("named", "ipv4:10.0.0.1:9", name="svc"), large_call("unix", "unix:")]
    tools = FakeTools((tool(), *(tool(f"t{index}") for index in range(20))))
    async with Executor(tools, pools, journal=NO_JOURNAL, max_concurrent_calls=99) as executor:
        checks = executor._needs.checks
        await checks.check_beside(("warm",), SMALL)
        os.kill(process_of(checks), signal.SIGSTOP)
        calls = [executor.start(each) for each in (*flood, *few)]
        await until(lambda: checks.busy)
        os.kill(process_of(checks), signal.SIGCONT)
        assert [(await ended(call)).error for call in calls] == [None] * 42
    # After the one that had begun, one of each caller that floods.
    order = [each.invocation.call_id for each in worker.attempts]
    assert set(order[:5]) > {"named", "unix"}


async def test_large_and_small_arguments_are_refused_alike(worker: FakeWorker, executor: Executor) -> None:
    worker.answer = lambda _: answered("done")
    for size in (1, 100_000):
        wrong = await ended(executor.start(request(json.dumps({"text": ["x" * size]}))))
        assert wrong.error is not None
        assert wrong.error.details["arguments"] == [
            {"pointer": "/text", "rule": "type", "message": 'the value is not of type "string"'}
        ]
        right = await ended(executor.start(request(json.dumps({"text": "x" * size}))))
        assert right.error is None


async def test_the_first_calls_of_a_long_schema_begin_in_their_order(pools: FakePools, worker: FakeWorker) -> None:
    worker.answer = lambda _: answered("done")
    long = tool(schema=json.dumps({"type": "object", "description": "x" * 4000, "required": ["n"]}))
    async with Executor(FakeTools((long,)), pools, journal=NO_JOURNAL, max_concurrent_calls=12) as executor:
        calls = [executor.start(request('{"n":1}', call_id=f"c{index}")) for index in range(9)]
        assert [(await ended(call)).error for call in calls] == [None] * 9
        assert executor._needs.checks.pid is None
    assert [each.invocation.call_id for each in worker.attempts] == [f"c{index}" for index in range(9)]


async def test_a_long_schema_that_is_unusable_is_told_each_time(pools: FakePools) -> None:
    unusable = json.dumps({"type": "object", "description": "x" * 4000, "$ref": "#/nowhere"})
    async with Executor(
        FakeTools((tool(schema=unusable),)), pools, journal=NO_JOURNAL, max_concurrent_calls=9
    ) as executor:
        for _ in range(2):
            assert code_of(await ended(executor.start(request("{}")))) is Code.CONFIG_PLUGIN_INVALID
