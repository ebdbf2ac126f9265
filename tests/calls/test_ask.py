"""A question of a tool's has one answer on record, whenever its call ends, and leaves no approval open."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fumehood_evidence.note import Signer
from fumehood_server.calls import Call, questions
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.steps.ask import AskParts, ask_person
from fumehood_server.errors import PluginRequestError
from fumehood_server.journal.approvals import ApprovalRecords
from fumehood_server.journal.checkpoints import Checkpointer
from fumehood_server.journal.journal import StoredJournal
from fumehood_server.journal.place import FilePlace
from fumehood_server.journal.reads import JournalReads
from fumehood_server.journal.standing_approvals import StandingRecords
from fumehood_server.model import schema
from fumehood_server.model.approvals import Approval, ApprovalRefusedError, ApprovalState, Choice
from fumehood_server.model.caller import Authentication, Caller
from fumehood_server.model.events import About
from fumehood_server.model.mcp_reading import McpReading
from fumehood_server.model.policy import NO_RULES
from fumehood_server.model.questions import Answer, AnswerAction, Question
from fumehood_server.policy.desk import ApprovalDesk
from fumehood_server.policy.interfaces import DeskSettings

from tests.journal.reading import Recorded

from .fake import BOUND_S, request, tool

SETTINGS = DeskSettings(decide_within_s=3600.0, use_within_s=600.0, max_open=100, standing_max_s=3600.0)
ANN = Caller(name="Ann", authenticated_by=Authentication.TOKEN, connection="ipv4:2")
YES = Question("Go on?", "")


def asking_call(call_id: str, *, takes_questions: bool = False) -> Call:
    call = Call(replace(request(call_id=call_id), takes_questions=takes_questions))
    call.about = About(call_id=call_id, tool="echo", plugin="fake")
    return call


@dataclass
class House:
    desk: ApprovalDesk
    journal: StoredJournal
    parts: AskParts
    folder: Path

    def ask(self, call_id: str) -> asyncio.Task[Answer]:
        call = asking_call(call_id)
        return asyncio.create_task(ask_person(call, tool(), Progress(), self.parts, YES))

    async def approval(self, call_id: str) -> Approval:
        """That of the call's first question, once it is asked for."""
        async with asyncio.timeout(BOUND_S):
            while (found := await self.desk.of_call(f"{call_id}?question-1")) is None:  # noqa: ASYNC110 - its own task
                await asyncio.sleep(0)
        return found


@asynccontextmanager
async def house(folder: Path) -> AsyncIterator[House]:
    (folder / ".fumehood").mkdir()
    place = FilePlace(Recorded(folder).path)
    async with StoredJournal(
        lambda: place.open_store("one"),
        place.open_reader,
        sidecar="one",
        on_state=lambda _: None,
        window_s=3600.0,
        upkeep=Checkpointer(Signer.generate("test/questions")),
        reads=JournalReads(place, list),
        commit_s=BOUND_S,
    ) as journal:
        assert journal.reads is not None
        records, standing = ApprovalRecords(journal, journal.reads), StandingRecords(journal, journal.reads)
        async with ApprovalDesk(records, standing, lambda: SETTINGS) as desk:
            yield House(desk, journal, AskParts(journal=journal, approvals=desk, policy=NO_RULES), folder)


def on_record(folder: Path) -> dict[str, list[str]]:
    """What was answered, by the call whose question it was. Each question that was asked is there."""
    answers: dict[str, list[str]] = {}
    recorded = Recorded(folder)
    for each in recorded.events("question_asked"):
        assert each["call_id"] not in answers
        answers[each["call_id"]] = []
    for each in recorded.events("question_answered"):
        answers[each["call_id"]].append(each["data"]["action"])
    return answers


@pytest.mark.parametrize("is_decided", [False, True])
async def test_question_whose_call_ends_at_any_moment_has_one_answer_on_record(
    tmp_path: Path, is_decided: bool
) -> None:
    async def decide(place: House, call_id: str) -> None:
        approval = await place.approval(call_id)
        with contextlib.suppress(ApprovalRefusedError):
            await place.desk.decide(approval, Choice.APPROVE, ANN, reason="", digest=approval.digest)

    def moments() -> Iterator[float]:
        """Many within the time of a quick disk, and then later ones, until a question was answered before its end."""
        yield from (each * 0.000_25 for each in range(80))
        moment = 0.04
        while is_decided and not any(isinstance(each, Answer) for each in ended):
            assert moment < BOUND_S
            yield moment
            moment *= 2

    ended: list[Answer | BaseException] = []
    async with house(tmp_path) as place:
        for number, moment in enumerate(moments()):
            asking = place.ask(f"call-{number}")
            deciding = asyncio.create_task(decide(place, f"call-{number}")) if is_decided else None
            await asyncio.sleep(moment)
            while not asking.done():  # as a worker does, first when it tells the call to end and then at its end
                asking.cancel()
                await asyncio.sleep(0)
            (found,) = await asyncio.gather(asking, return_exceptions=True)
            ended.append(found)
            if deciding is not None:
                await deciding
        _, left = await place.desk.open(-1, limit=100)
    answers = on_record(tmp_path)
    assert not left
    assert len(answers) == len(ended)
    assert {tuple(each) for each in answers.values()} <= {("accept",), ("cancel",)}
    for number, found in enumerate(ended):
        if not isinstance(found, asyncio.CancelledError):
            assert isinstance(found, Answer)
            assert answers[f"call-{number}"] == [found.action.value]
    assert (["accept"] in answers.values()) is is_decided
    assert ["cancel"] in answers.values()


async def test_no_answer_is_put_on_record_beside_one_that_may_be_written_yet(tmp_path: Path) -> None:
    async with house(tmp_path) as place:
        asking = place.ask("late")
        found = await place.approval("late")
        with contextlib.closing(sqlite3.connect(Recorded(tmp_path).path, isolation_level=None)) as other:
            approved = await place.desk.decide(found, Choice.APPROVE, ANN, reason="", digest=found.digest)
            other.execute("BEGIN IMMEDIATE")
            place.journal._commit_s = 0.5
            with pytest.raises(PluginRequestError) as caught:
                await asking
            place.journal._commit_s = BOUND_S
            other.execute("ROLLBACK")
        assert caught.value.reason == "approval_unavailable"
        async with asyncio.timeout(BOUND_S):
            while approved.state.is_open:
                approved = await place.approval("late")
    assert on_record(tmp_path) == {"late": ["accept"]}


async def test_call_waits_for_people_only_so_long_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "MAX_WAITED_S", 0.3)
    async with house(tmp_path) as place:
        call = asking_call("long")
        ask = functools.partial(ask_person, call, tool(), Progress(), place.parts, YES)
        assert await ask() == Answer(AnswerAction.CANCEL)
        with pytest.raises(PluginRequestError, match="for people, and may ask no more") as caught:
            await ask()
        assert caught.value.reason == "question_limit"
        assert (await place.approval("long")).state is ApprovalState.WITHDRAWN
        listening = asking_call("asked", takes_questions=True)
        assert await ask_person(listening, tool(), Progress(), place.parts, YES) == Answer(AnswerAction.CANCEL)
    assert on_record(tmp_path) == {"long": ["cancel"], "asked": ["cancel"]}


async def test_reading_whose_caller_would_not_be_told_waits_for_no_approver(tmp_path: Path) -> None:
    async with house(tmp_path) as place:
        definition = replace(tool().definition, name=McpReading.READ_RESOURCE.value)
        reading = replace(tool(), definition=definition)
        with pytest.raises(PluginRequestError) as refused:
            await asyncio.wait_for(ask_person(asking_call("reading"), reading, Progress(), place.parts, YES), BOUND_S)
        assert refused.value.reason == "nobody_to_ask"
        asking = place.ask("control")
        approval = await place.approval("control")
        await place.desk.decide(approval, Choice.APPROVE, ANN, reason="", digest=approval.digest)
        assert (await asking).action is AnswerAction.ACCEPT


async def test_patterns_of_a_question_are_built_only_for_a_caller_who_takes_it_and_only_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "MAX_WAITED_S", 0.3)
    few, many = (
        Question("Which?", json.dumps({"type": "object", "properties": {"a": {"pattern": each}}}))
        for each in (r"^\p{L}+$", r"\pL{180}")
    )
    built: list[object] = []
    build = schema.compile_schema
    monkeypatch.setattr(schema, "compile_schema", lambda each: (built.append(each), build(each)))
    async with house(tmp_path) as place:
        for question in (few, many):
            with pytest.raises(PluginRequestError) as caught:
                await ask_person(asking_call("unheard"), tool(), Progress(), place.parts, question)
            assert caught.value.reason == "nobody_to_ask"
        asked = functools.partial(ask_person, asking_call("heard", takes_questions=True), tool(), Progress())
        with pytest.raises(PluginRequestError, match=r'"\\pL\{180\}"') as caught:
            await asked(place.parts, many)
        assert caught.value.reason == "question_invalid"
        assert not built
        assert await asked(place.parts, few) == Answer(AnswerAction.CANCEL)
        assert built
