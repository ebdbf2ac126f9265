"""A hook that hangs, dies, never reads or says what it must not: the call ends, or goes on, as the operator said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import pytest
from fumehood.v1 import hook_service_pb2 as hpb

from tests.hooks.support import Client, allow, details, output
from tests.journal.reading import Recorded, data
from tests.rpc.support import reason_of
from tests.sidecar import Sidecar


async def test_without_its_hook_a_call_is_denied_unless_the_operator_said_otherwise(
    client: Client, sidecar: Sidecar
) -> None:
    found = await client.call("say", "closed", text="a")
    assert (found.error.code, found.attempts, found.error.retryable) == ("TOOL_UNAVAILABLE", 0, True)
    told = details(found)
    assert (told["reason"], told["hook"], told["problem"]) == ("hook_gone", "first", "not_connected")
    async with client.serving("first"):
        assert output(await client.call("say", "open", text="a")) == {"said": "a"}
    events = await Recorded(sidecar.folder).call_until("open", "execute_end")
    said = [each for each in data(events, "hook_decided") if each["hook"] == "second"]
    assert [(each["choice"], each["reason"], each["proceeds"]) for each in said] == [
        ("gone", "not_connected", True)
    ] * 2


async def test_a_hook_that_hangs_is_not_waited_for_and_answers_too_late(client: Client) -> None:
    hook = await client.connect("quick")
    call = asyncio.create_task(client.call("show", text="a"))
    question = await hook.question()
    assert details(await call)["problem"] == "timeout"
    await hook.answer(question, allow(question))
    again = asyncio.create_task(client.call("show", text="a"))
    for _ in range(2):
        question = await hook.question()
        await hook.answer(question, allow(question))
    assert not (await again).is_error
    hook.stream.cancel()
    await client.until_gone("quick")


async def test_a_hook_that_goes_while_it_is_asked_ends_the_call_and_no_other_stream_is_asked(client: Client) -> None:
    hook = await client.connect("first")
    call = asyncio.create_task(client.call("say", text="a"))
    await hook.question()
    other = await client.connect("first")
    hook.stream.cancel()
    assert details(await call)["problem"] == "disconnected"
    other.stream.cancel()
    await client.until_gone("first")


async def test_a_hook_that_reads_nothing_is_ended_and_holds_up_no_other_call(client: Client) -> None:
    hook = await client.connect("quick")
    text = "a" * 200_000  # more than flow control lets through unread
    calls = [asyncio.create_task(client.call("show", text=text)) for _ in range(70)]
    async with client.serving("first"), client.serving("second"):
        assert output(await client.call("say", text="a")) == {"said": "a"}
    told = [details(await each) for each in calls]
    assert {each["reason"] for each in told} == {"hook_gone"}, told
    await client.until_gone("quick")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await hook.run(lambda _: None, quietly=False)
    assert reason_of(refused.value) == "HOOK_UNRESPONSIVE"


def _answer(of: Callable[[hpb.HookQuestion], int], **answer: object) -> Callable[[hpb.HookQuestion], hpb.HookAnswer]:
    return lambda asked: hpb.HookAnswer(question_id=of(asked), **answer)  # type: ignore[arg-type]


def _same(asked: hpb.HookQuestion) -> int:
    return asked.question_id


WRONG = {
    "never asked": _answer(lambda asked: asked.question_id + 1, allow=hpb.HookAllow()),
    "no question": _answer(lambda _: 0, allow=hpb.HookAllow()),
    "nothing": _answer(_same),
    "of the other stage": _answer(_same, change_result=hpb.HookChangeResult()),
    "a long reason": _answer(_same, deny=hpb.HookDeny(reason="é" * 513)),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
async def test_a_wrong_answer_ends_the_stream_and_the_call(
    client: Client, wrong: Callable[[hpb.HookQuestion], hpb.HookAnswer]
) -> None:
    hook = await client.connect("first")
    call = asyncio.create_task(client.call("say", text="a"))
    await hook.stream.write(hpb.InterceptRequest(answer=wrong(await hook.question())))
    assert await hook.ended() is grpc.StatusCode.INVALID_ARGUMENT
    assert details(await call)["problem"] == "disconnected"


async def test_a_question_is_answered_once(client: Client) -> None:
    hook = await client.connect("first")
    call = asyncio.create_task(client.call("say", text="a"))
    question = await hook.question()
    for _ in range(2):
        await hook.answer(question, hpb.HookAnswer(deny=hpb.HookDeny()))
    assert await hook.ended() is grpc.StatusCode.INVALID_ARGUMENT
    assert (await call).error.code == "TOOL_DENIED"


FIRST = {
    "an answer": (hpb.InterceptRequest(answer=hpb.HookAnswer()), "REQUEST_INVALID"),
    "nothing": (hpb.InterceptRequest(), "REQUEST_INVALID"),
    "no hook": (hpb.InterceptRequest(serve=hpb.ServeHook(hook="none\n" * 100)), "HOOK_NOT_FOUND"),
}


@pytest.mark.parametrize(("first", "reason"), FIRST.values(), ids=FIRST.keys())
async def test_a_stream_says_first_which_hook_it_serves(
    client: Client, first: hpb.InterceptRequest, reason: str
) -> None:
    stream = client.hooks.Intercept()
    await stream.write(first)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stream.read()
    assert reason_of(refused.value) == reason


async def test_a_second_word_for_which_hook_it_serves_ends_the_stream(client: Client) -> None:
    hook = await client.connect("first")
    await hook.stream.write(hpb.InterceptRequest(serve=hpb.ServeHook(hook="second")))
    assert await hook.ended() is grpc.StatusCode.INVALID_ARGUMENT


async def test_more_calls_than_a_stream_takes_questions_wait_for_a_place(client: Client) -> None:
    async with client.serving("first") as hook, client.serving("second"):
        results = await asyncio.gather(*(client.call("say", text="a") for _ in range(100)))
        assert {output(each)["said"] for each in results} == {"a"}
    assert len(hook.asked) == 200
