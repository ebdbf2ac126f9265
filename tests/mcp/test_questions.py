"""Elicitation: a server's form is a question in the caller's stream, or an approval where it asks for a mere yes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import approval_service_pb2 as approvals
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.approval_service_pb2_grpc import ApprovalServiceStub

from tests.cli.command import fumehood
from tests.journal.reading import Recorded, data
from tests.mcp.conftest import Hosted
from tests.mcp.support import Caller, mcp_plugin, reason
from tests.sidecar import running_sidecar

REVISIONS = pytest.mark.parametrize("prefix", ["", "new_"], ids=["2025-11-25", "2026-07-28"])
ELICITATION = "elicitation/create"
TIMEOUT_S = 5
"""Of a tool that asks: what its process takes before and after the answer."""


def asking(prefix: str, call_id: str = "", /, *, of: str = ELICITATION, **more: Any) -> pb.StreamToolRequest:
    arguments = {"method": ELICITATION, "of": of, "or_fail": True}
    call = pb.CallToolRequest(
        tool=f"{prefix}ask_client", call_id=call_id, arguments_json=json.dumps(arguments), takes_questions=True, **more
    )
    return pb.StreamToolRequest(call=call)


async def question_of(events: AsyncIterator[pb.StreamToolResponse]) -> tool_pb2.ToolQuestion:
    async for event in events:
        if event.HasField("question"):
            return event.question
    raise AssertionError("it ended without a question")


async def finish(events: AsyncIterator[pb.StreamToolResponse]) -> tool_pb2.ToolResult:
    async for event in events:
        if event.HasField("finished"):
            return event.finished
    raise AssertionError("it ended without a result")


def answer(question: tool_pb2.ToolQuestion, action: str = "ACCEPT", content: object = None) -> pb.AnswerQuestionRequest:
    return pb.AnswerQuestionRequest(
        call_id=question.call_id,
        question_id=question.question_id,
        action=tool_pb2.AnswerAction.Value(f"ANSWER_ACTION_{action}"),
        content_json="" if content is None else json.dumps(content),
    )


def told(result: tool_pb2.ToolResult) -> Any:
    """What the server was told, in either revision."""
    assert not result.is_error, result.error
    found = json.loads(result.content[0].text)
    return found.get("it") or found["result"]


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


@REVISIONS
async def test_question_is_answered_in_the_callers_stream(caller: Caller, prefix: str) -> None:
    events = aiter(caller.stub.StreamTool(asking(prefix, of="choice")))
    question = await question_of(events)
    assert (question.tool, question.message) == (f"{prefix}ask_client", "Which one?")
    assert question.question_id == ("it" if prefix else "question-1"), "the server's name for it, where it has one"
    assert json.loads(question.schema_json)["properties"]["colour"]["enum"] == ["red", "blue"]
    assert 890 < question.timeout.ToSeconds() <= 900

    code, text = await refused(caller.stub.AnswerQuestion(answer(question, content={"colour": "green"})))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "/colour" in text
    await caller.stub.AnswerQuestion(answer(question, content={"colour": "red", "count": "3"}))
    assert told(await finish(events)) == {"action": "accept", "content": {"colour": "red", "count": 3}}
    assert await refused(caller.stub.AnswerQuestion(answer(question, content={"colour": "red"}))) == (
        grpc.StatusCode.NOT_FOUND,
        f'no question "{question.question_id}" of a call "{question.call_id}" is open',
    )


@REVISIONS
@pytest.mark.parametrize("action", ["DECLINE", "CANCEL"])
async def test_no_is_an_answer(caller: Caller, prefix: str, action: str) -> None:
    events = aiter(caller.stub.StreamTool(asking(prefix)))
    question = await question_of(events)
    wrong = answer(question, action, {"colour": "red"})
    assert (await refused(caller.stub.AnswerQuestion(wrong)))[0] is grpc.StatusCode.INVALID_ARGUMENT
    await caller.stub.AnswerQuestion(answer(question, action))
    assert told(await finish(events)) == {"action": action.lower()}


async def test_answer_says_who_and_what_or_is_refused(caller: Caller) -> None:
    events = aiter(caller.stub.StreamTool(asking("", of="yes")))
    question = await question_of(events)
    assert question.schema_json == ""
    for wrong in (
        pb.AnswerQuestionRequest(question_id="question-1", action=tool_pb2.ANSWER_ACTION_ACCEPT),
        pb.AnswerQuestionRequest(call_id=question.call_id, question_id="question-1"),
        answer(question, content={"colour": "red"}),
        answer(question, content="x" * 70_000),
    ):
        assert (await refused(caller.stub.AnswerQuestion(wrong)))[0] is grpc.StatusCode.INVALID_ARGUMENT
    await caller.stub.AnswerQuestion(answer(question))
    assert told(await finish(events)) == {"action": "accept", "content": {}}


@pytest.mark.parametrize("method", ["CallTool", "CallTools"])
async def test_calls_without_a_stream_take_no_questions(caller: Caller, method: str) -> None:
    call = asking("").call
    made = (
        caller.stub.CallTool(call)
        if method == "CallTool"
        else anext(aiter(caller.stub.CallTools(pb.CallToolsRequest(calls=[call]))))
    )
    code, text = await refused(made)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "takes_questions needs a stream" in text


async def test_who_joins_a_call_is_told_of_its_question(caller: Caller) -> None:
    request = asking("", "joined-question", continue_if_disconnected=True)
    first = caller.stub.StreamTool(request)
    question = await question_of(aiter(first))
    first.cancel()
    events = aiter(caller.stub.StreamTool(request))
    assert (await question_of(events)).question_id == question.question_id
    await caller.stub.AnswerQuestion(answer(question, content={"colour": "red"}))
    assert told(await finish(events))["content"] == {"colour": "red"}


async def test_session_has_questions_and_no_updates_that_nobody_asked_for(caller: Caller) -> None:
    session = caller.stub.Session()
    await session.write(pb.SessionRequest(call=asking("", of="yes").call))
    response = await session.read()
    assert isinstance(response, pb.SessionResponse)
    assert response.WhichOneof("event") == "question"
    await caller.stub.AnswerQuestion(answer(response.question))
    response = await session.read()
    assert isinstance(response, pb.SessionResponse)
    assert told(response.finished) == {"action": "accept", "content": {}}
    await session.done_writing()


@REVISIONS
async def test_form_of_a_call_that_takes_no_questions_is_refused_by_name(caller: Caller, prefix: str) -> None:
    result = await caller.call(f"{prefix}ask_client", method=ELICITATION, or_fail=True)
    assert reason(result) == "elicitation_refused"
    (asked,) = json.loads(result.error.details_json)["requests"]
    assert (asked["message"], asked["refused"]) == ("Which colour?", "nobody_to_ask")
    assert "its caller takes none" in result.error.message


@REVISIONS
@pytest.mark.parametrize(("of", "why"), [("url", "another mode than a form"), ("nothing", "no message")])
async def test_what_is_no_form_is_refused_by_name(caller: Caller, prefix: str, of: str, why: str) -> None:
    result = await finish(aiter(caller.stub.StreamTool(asking(prefix, of=of))))
    assert reason(result) == "elicitation_refused"
    assert why in result.error.message


@REVISIONS
@pytest.mark.parametrize(("choice", "action"), [("APPROVE", "accept"), ("DENY", "decline")])
async def test_mere_yes_is_an_approval_where_the_caller_takes_no_questions(
    hosted: Hosted, caller: Caller, prefix: str, choice: str, action: str
) -> None:
    made = asyncio.create_task(caller.call(f"{prefix}ask_client", method=ELICITATION, of="yes"))
    async with hosted.sidecar.channel() as channel:
        stub = ApprovalServiceStub(channel)
        async for event in stub.WatchApprovals(approvals.WatchApprovalsRequest()):
            found = event.approval
            if found.tool == f"{prefix}ask_client" and found.state == approvals.APPROVAL_STATE_PENDING:
                break
        assert json.loads(found.arguments_json) == {"question": "Go on?"}
        assert [each.rule for each in found.requirements] == ["question"]
        edited = approvals.DecideApprovalRequest(
            approval_id=found.approval_id,
            choice=approvals.APPROVAL_CHOICE_APPROVE,
            digest=found.digest,
            arguments_json='{"method": "other"}',
        )
        code, text = await refused(stub.DecideApproval(edited))
        assert (code, "it answers a question" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        decided = await stub.DecideApproval(
            approvals.DecideApprovalRequest(
                approval_id=found.approval_id,
                choice=approvals.ApprovalChoice.Value(f"APPROVAL_CHOICE_{choice}"),
                digest=found.digest,
            )
        )
    assert decided.approval.approval_id == found.approval_id
    result = await made
    assert told(result)["action"] == action
    events = await Recorded(hosted.sidecar.folder).call_until(result.call_id, "execute_end")
    shown = fumehood("journal", "tail", "--call", result.call_id, folder=hosted.sidecar.folder).stdout
    name = "it" if prefix else "question-1"  # the server's for the question, where it has one
    assert f"{name}: asks the approvers, approval-" in shown
    assert f"{name}: {action} by" in shown
    assert [each["asked"] for each in data(events, "question_asked")] == ["approvers"]
    assert [each["action"] for each in data(events, "question_answered")] == [action]
    used = [each["approval_id"] for each in data(events, "approval_used")]
    assert used == ([found.approval_id] if choice == "APPROVE" else [])
    assert found.call_id == result.call_id
    assert [each["approval_id"] for each in data(events, "approval_requested")] == [found.approval_id]
    assert Recorded(hosted.sidecar.folder).verified()
    done = fumehood("journal", "verify", folder=hosted.sidecar.folder)
    assert done.status == 0, done.stdout + done.stderr


async def test_timeout_of_the_tool_stands_still_while_a_person_thinks(tmp_path: Path) -> None:
    tools = f"[plugin.tools.ask_client]\ntimeout_s = {TIMEOUT_S}\n[plugin.tools.slow]\ntimeout_s = 1"
    small = mcp_plugin(tmp_path / "small", environment={"STATELESS": '"1"'})
    with running_sidecar([(small, tools)]) as sidecar:
        async with sidecar.channel() as channel:
            caller = Caller(channel)
            assert (await caller.call("slow")).error.code == "TOOL_TIMEOUT"
            assert await caller.text("echo", text="one process") == "one process"
            events = aiter(caller.stub.StreamTool(asking("", of="yes")))
            question = await question_of(events)
            finished = asyncio.create_task(finish(events))
            ended, _ = await asyncio.wait({finished}, timeout=TIMEOUT_S + 1)
            assert not ended
            await caller.stub.AnswerQuestion(answer(question))
            assert told(await finished)["action"] == "accept"
            bounded = asking("", of="yes")
            bounded.call.timeout.FromMilliseconds(300)
            assert (await finish(aiter(caller.stub.StreamTool(bounded)))).error.code == "TOOL_TIMEOUT"


@pytest.mark.parametrize("concurrency", ["", "concurrency = 1"])
async def test_of_calls_side_by_side_nobody_knows_which_one_asks_unless_each_has_its_process(
    tmp_path: Path, concurrency: str
) -> None:
    with running_sidecar([mcp_plugin(tmp_path / "small", more=concurrency)]) as sidecar:
        async with sidecar.channel() as channel:
            caller = Caller(channel)
            slow = pb.CallToolRequest(tool="slow", call_id="beside")
            beside = aiter(caller.stub.StreamTool(pb.StreamToolRequest(call=slow)))
            async for event in beside:
                if event.HasField("update"):
                    break
            events = aiter(caller.stub.StreamTool(asking("")))
            if concurrency:
                question = await question_of(events)
                await caller.stub.AnswerQuestion(answer(question, content={"colour": "red"}))
                assert told(await finish(events))["action"] == "accept"
            else:
                result = await finish(events)
                assert reason(result) == "tool_error"
            await caller.stub.CancelCall(pb.CancelCallRequest(call_id="beside"))
            assert not [each async for each in beside if each.HasField("question")]


async def test_caller_is_not_asked_what_another_call_that_has_ended_asks_late(tmp_path: Path) -> None:
    with running_sidecar([mcp_plugin(tmp_path / "small")]) as sidecar:
        async with sidecar.channel() as channel:
            caller = Caller(channel)
            slow = pb.CallToolRequest(tool="slow", call_id="asked-for-another", takes_questions=True)
            other = aiter(caller.stub.StreamTool(pb.StreamToolRequest(call=slow)))
            async for event in other:
                if event.HasField("update"):
                    break
            assert await caller.text("ask_client", method=ELICITATION, late=True) == "asks later"
            await asyncio.sleep(1.0)  # it asks after half a second
            await caller.stub.CancelCall(pb.CancelCallRequest(call_id="asked-for-another"))
            assert not [each async for each in other if each.HasField("question")]


@pytest.mark.parametrize("stateless", ["", "1"], ids=["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("isolation", ["", 'isolation = "call"'])
async def test_after_a_cancelled_call_that_is_not_answered_nobody_knows_which_one_asks_unless_each_has_its_process(
    tmp_path: Path, isolation: str, stateless: str
) -> None:
    folder = mcp_plugin(tmp_path / "small", more=isolation, environment={"STATELESS": f'"{stateless}"'})
    with running_sidecar([folder]) as sidecar:
        async with sidecar.channel() as channel:
            caller = Caller(channel)
            slow = pb.CallToolRequest(tool="slow", call_id="stopped")
            async for event in caller.stub.StreamTool(pb.StreamToolRequest(call=slow)):
                if event.HasField("update") and event.update.progress == 1:
                    await caller.stub.CancelCall(pb.CancelCallRequest(call_id="stopped"))
                elif event.HasField("finished"):
                    assert event.finished.error.code == "CANCELLED_SIGNAL"  # and its server says no more
            events = aiter(caller.stub.StreamTool(asking("")))
            if isolation or stateless:
                await caller.stub.AnswerQuestion(answer(await question_of(events), content={"colour": "red"}))
                assert told(await finish(events))["action"] == "accept"
            else:
                refusals = []
                async for event in events:
                    assert not event.HasField("question")
                    if event.HasField("finished"):
                        refusals.append(reason(event.finished))
                assert refusals == ["tool_error"]
            log = fumehood("plugin", "logs", "small", "--json", address=sidecar.target).stdout
            assert ("call_unknown" in log) is not bool(isolation or stateless)


async def test_questions_and_answers_are_on_record(hosted: Hosted, caller: Caller) -> None:
    events = aiter(caller.stub.StreamTool(asking("", "on-record")))
    await caller.stub.AnswerQuestion(answer(await question_of(events), content={"colour": "red"}))
    await finish(events)
    cancelled = aiter(caller.stub.StreamTool(asking("", "cancelled-question")))
    await question_of(cancelled)
    await caller.stub.CancelCall(pb.CancelCallRequest(call_id="cancelled-question"))
    assert (await finish(cancelled)).error.code == "CANCELLED_SIGNAL"
    recorded = await Recorded(hosted.sidecar.folder).call_until("on-record", "execute_end")
    (asked,) = data(recorded, "question_asked")
    assert (asked["asked"], asked["refused"], asked["question"]["kept"]) == ("caller", "", True)
    (answered,) = data(recorded, "question_answered")
    assert answered["action"] == "accept"
    assert answered["by"].startswith("unix:")
    assert answered["answer"]["size"] == len('{"colour": "red"}')
    recorded = await Recorded(hosted.sidecar.folder).call_until("cancelled-question", "question_answered")
    assert [(each["action"], each["by"]) for each in data(recorded, "question_answered")] == [("cancel", "")]


async def test_call_may_ask_only_so_often(tmp_path: Path) -> None:
    folder = mcp_plugin(tmp_path / "asks", environment={"FAULT": '"asks"'})
    with running_sidecar([folder]) as sidecar:
        async with sidecar.channel() as channel:
            caller = Caller(channel)
            request = pb.CallToolRequest(tool="slow", call_id="asked", takes_questions=True)
            asked = beyond = 0
            async for event in caller.stub.StreamTool(pb.StreamToolRequest(call=request)):
                if event.HasField("question"):
                    asked += 1
                    await caller.stub.AnswerQuestion(answer(event.question, "CANCEL"))
                elif asked == 64 and event.HasField("update"):
                    beyond += 1
                    if beyond == 20:  # it has asked all the while
                        await caller.stub.CancelCall(pb.CancelCallRequest(call_id="asked"))
            assert asked == 64
            assert await caller.text("echo", text="still here") == "still here"
