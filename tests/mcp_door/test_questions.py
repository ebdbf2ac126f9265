"""Questions of tools in the middle of a call: a form at the MCP client, in both revisions and over both transports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import warnings
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
from fumehood.v1 import approval_service_pb2 as approval_pb
from fumehood.v1 import approval_service_pb2_grpc as approval_grpc
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp.types import ElicitRequestFormParams, ElicitResult, LoggingMessageNotificationParams

from tests.journal.reading import Recorded, data
from tests.mcp.support import mcp_plugin
from tests.sidecar import Sidecar, running_sidecar

from .support import BOUND_S, LEGACY, MODES, error_of, http_client, modern, request, stdio_client, text_of, url_of

LISTEN = '[mcp]\nlisten = "127.0.0.1:0"\nallow_anonymous = true\n'
ELICITATION = {"method": "elicitation/create", "or_fail": True}
SERVERS = pytest.mark.parametrize("prefix", ["", "new_"], ids=["server-2025-11-25", "server-2026-07-28"])


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """The small server in both revisions."""
    folder = tmp_path_factory.mktemp("asking")
    old, new = mcp_plugin(folder / "old"), mcp_plugin(folder / "new", environment={"STATELESS": '"1"'})
    with running_sidecar([old, (new, 'prefix = "new_"')], more=LISTEN) as running:
        yield running


class Person:
    """Sits at a client and answers its forms, one after the other."""

    def __init__(self, *answers: tuple[Any, dict[str, Any] | None]) -> None:
        self.answers = [ElicitResult(action=action, content=content) for action, content in answers]
        self.asked: list[ElicitRequestFormParams] = []

    async def __call__(self, _context: object, params: object) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        self.asked.append(params)
        return self.answers[len(self.asked) - 1]


def told(text: str) -> Any:
    found = json.loads(text)
    return found.get("it") or found["result"]


@SERVERS
@pytest.mark.parametrize("mode", MODES)
async def test_tools_question_is_a_form_of_the_client(sidecar: Sidecar, prefix: str, mode: str) -> None:
    tool = f"{prefix}ask_client"
    person = Person(("accept", {"colour": "red"}))
    async with http_client(url_of(sidecar), mode, elicitation_callback=person) as client:
        assert told(text_of(await client.call_tool(tool, ELICITATION)))["content"] == {"colour": "red"}
    (asked,) = person.asked
    assert asked.message == f"{tool} asks: Which colour?"
    assert asked.requested_schema["properties"]["colour"]["type"] == "string"
    person = Person(("decline", None))
    async with http_client(url_of(sidecar), mode, elicitation_callback=person) as client:
        assert told(text_of(await client.call_tool(tool, ELICITATION))) == {"action": "decline"}


@pytest.mark.parametrize("mode", MODES)
async def test_answer_that_does_not_fit_is_asked_for_again(sidecar: Sidecar, mode: str) -> None:
    person = Person(("accept", {"colour": "green"}), ("accept", {"colour": "blue", "count": 2}))
    async with http_client(url_of(sidecar), mode, elicitation_callback=person) as client:
        result = await client.call_tool("ask_client", {**ELICITATION, "of": "choice"})
    assert told(text_of(result))["content"] == {"colour": "blue", "count": 2}
    assert len(person.asked) == 2


async def test_answer_that_is_none_leaves_no_question_open(sidecar: Sidecar) -> None:
    class Garbled(Person):
        async def __call__(self, _context: object, params: object) -> ElicitResult:
            await super().__call__(_context, params)
            return ElicitResult.model_construct(action="perhaps", content=["red"])

    async with http_client(url_of(sidecar), LEGACY, elicitation_callback=Garbled(("cancel", None))) as client:
        async with asyncio.timeout(30):
            result = await client.call_tool("ask_client", {**ELICITATION, "or_fail": False})
    assert told(text_of(result)) == {"action": "cancel"}


@pytest.mark.parametrize("mode", MODES)
async def test_over_stdio_too(sidecar: Sidecar, mode: str) -> None:
    person = Person(("accept", None))
    async with stdio_client(sidecar.target, mode, elicitation_callback=person) as client:
        result = await client.call_tool("ask_client", {**ELICITATION, "of": "yes"})
    assert told(text_of(result)) == {"action": "accept", "content": {}}


@pytest.mark.parametrize("mode", MODES)
async def test_client_without_forms_is_told_what_was_asked(sidecar: Sidecar, mode: str) -> None:
    async with http_client(url_of(sidecar), mode) as client:
        error = error_of(await client.call_tool("ask_client", ELICITATION))
    assert error["details"]["reason"] == "elicitation_refused"
    assert error["details"]["requests"][0]["refused"] == "nobody_to_ask"


@pytest.mark.parametrize("mode", MODES)
async def test_wait_for_an_approver_is_told_with_the_approvals_id(sidecar: Sidecar, mode: str) -> None:
    """A yes or no of a client without forms is an approver's: nobody would know what the call waits for."""
    progressed: asyncio.Queue[str | None] = asyncio.Queue()
    logged: list[LoggingMessageNotificationParams] = []

    async def log(message: LoggingMessageNotificationParams) -> None:
        logged.append(message)

    async def progress(_done: float, _total: float | None, message: str | None) -> None:
        await progressed.put(message)

    async with (
        http_client(url_of(sidecar), mode, logging_callback=log, log_level="warning") as client,
        sidecar.channel() as channel,
    ):
        approvals = approval_grpc.ApprovalServiceStub(channel)
        if mode == LEGACY:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", MCPDeprecationWarning)
                await client.set_logging_level("warning")
        by_progress_too: dict[str, Any] = {"progress_callback": progress}
        for options in (by_progress_too, {}):
            call = asyncio.create_task(client.call_tool("ask_client", {**ELICITATION, "of": "yes"}, **options))
            approval = await pending(approvals)
            if options:
                said = await asyncio.wait_for(progressed.get(), 60)
                assert said is not None
                assert f"ask_client waits for an approval, {approval.approval_id}: " in said
                assert "`fumehood approvals watch`" in said
            yes = approval_pb.DecideApprovalRequest(
                approval_id=approval.approval_id, digest=approval.digest, choice=approval_pb.APPROVAL_CHOICE_APPROVE
            )
            await approvals.DecideApproval(yes)
            assert told(text_of(await call))["action"] == "accept"
            message = logged.pop()
            assert (message.level, message.logger) == ("warning", "ask_client")
            assert message.data["approval_id"] == approval.approval_id
            assert approval.approval_id in message.data["message"]
    assert logged == []


async def pending(approvals: approval_grpc.ApprovalServiceStub) -> approval_pb.Approval:
    """The one approval that is open, once there is one."""
    every = approval_pb.ListApprovalsRequest()
    async with asyncio.timeout(60):
        while not (found := (await approvals.ListApprovals(every)).approvals):  # noqa: ASYNC110 - another process has it
            await asyncio.sleep(0.01)
    (approval,) = found
    return approval


async def test_call_whose_client_goes_away_is_cancelled(sidecar: Sidecar) -> None:
    """In 2026-07-28 a call goes on beyond the request that it was made by: but not without anybody."""
    forms = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}, "fumehood/callId": "gone"}
    body, headers = modern("tools/call", name="new_slow", arguments={}, meta=forms)
    shown = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", **headers}
    where, journal = urlsplit(url_of(sidecar)), Recorded(sidecar.folder)
    with contextlib.closing(HTTPConnection(where.hostname or "", where.port or 0, timeout=BOUND_S)) as connection:
        connection.request("POST", where.path, json.dumps(body), shown)
        await journal.call_until("gone", "execute_start")
    events = await journal.call_until("gone", "execute_cancelled")
    assert [each["reason"] for each in data(events, "execute_cancelled")] == ["caller"]


def test_question_outlives_its_request_and_another_one_answers(sidecar: Sidecar) -> None:
    forms = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}

    def sent(**more: Any) -> dict[str, Any]:
        body, headers = modern("tools/call", name="ask_client", arguments=ELICITATION, meta=forms, **more)
        _, _, answer = request(url_of(sidecar), body=body, **headers)
        found: dict[str, Any] = json.loads(answer)["result"]
        return found

    asked = sent()
    assert asked["resultType"] == "input_required"
    (name,) = asked["inputRequests"]
    assert asked["inputRequests"][name]["method"] == "elicitation/create"
    state = {"requestState": asked["requestState"]}
    again = sent(**state, inputResponses={})  # nothing is answered
    assert again["inputRequests"] == asked["inputRequests"]
    answers = {name: {"action": "accept", "content": {"colour": "red"}}}
    assert told(sent(**state, inputResponses=answers)["content"][0]["text"])["content"] == {"colour": "red"}
    repeated = sent(**state, inputResponses=answers)  # it has its outcome
    assert told(repeated["content"][0]["text"])["content"] == {"colour": "red"}


@pytest.mark.parametrize(
    ("colour", "name", "is_taken"),
    [("red", "it", True), ("green", "it", False), ("red", "question-1", False)],
    ids=["fits", "no choice of the form", "of another name"],
)
def test_answer_that_comes_with_the_request_is_to_the_question_of_its_name(
    sidecar: Sidecar, colour: str, name: str, is_taken: bool
) -> None:
    forms = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    asking = {**ELICITATION, "of": "choice"}

    def sent(answers: dict[str, Any], **more: Any) -> dict[str, Any]:
        body, headers = modern(
            "tools/call", name="new_ask_client", arguments=asking, meta=forms, inputResponses=answers, **more
        )
        _, _, answer = request(url_of(sidecar), body=body, **headers)
        found: dict[str, Any] = json.loads(answer)["result"]
        return found

    given = {"action": "accept", "content": {"colour": colour}}
    result = sent({name: given, "other": {"action": "accept", "content": {"a": 1}}})
    if not is_taken:
        assert set(result["inputRequests"]) == {"it"}, "the name that the server has for it"
        given = {"action": "accept", "content": {"colour": "blue"}}
        result = sent({"it": given}, requestState=result["requestState"])
    assert told(result["content"][0]["text"]) == given
