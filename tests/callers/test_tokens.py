"""Bearer tokens against the real sidecar: who is taken, who is refused and why, and while tokens are changed."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from fumehood.v1 import approval_service_pb2 as approval_pb
from fumehood.v1 import journal_service_pb2 as journal_pb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_server.callers import TokenFileError, TokenStore
from fumehood_server.callers.token_file import TOKEN, changing, make_token, read_tokens
from fumehood_server.rpc.authentication import LOG_BURST, LOG_PER_SECOND
from fumehood_server.rpc.health import MAX_WATCHES_OF_CONNECTION
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.rpc.support import BOUND_S, call, metadata_of, reason_of, refused, text_of

from .support import House, Metadata, bearer, revoke, token_of


async def said(service: Any, shown: Metadata = (), **fields: Any) -> str:
    answer = await service.tools.CallTool(call("say", {"text": "yes"}, **fields), metadata=shown, timeout=BOUND_S)
    assert not answer.result.is_error, answer.result.error
    return text_of(answer.result)


async def problem(answer: Any) -> str:
    """Why a request is not authenticated."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await answer
    assert (caught.value.code(), reason_of(caught.value)) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")
    return metadata_of(caught.value)["problem"]


async def events_of(house: House, **wanted: Any) -> list[journal_pb.JournalEvent]:
    """The first events that fit, once there are some."""
    request = journal_pb.WatchEventsRequest(filter=journal_pb.EventFilter(start_position=0, **wanted))
    watch = house.unix.journal.WatchEvents(request, timeout=BOUND_S)
    while not (found := (await watch.read()).events):
        pass
    watch.cancel()
    return list(found)


async def test_a_caller_with_a_token_is_served_on_loopback_and_one_without_is_not(house: House) -> None:
    assert await said(house.tcp, house.token("reader")) == "yes"
    assert await problem(said(house.tcp)) == "credentials_missing"


async def test_who_may_open_the_unix_socket_needs_no_token(house: House) -> None:
    assert await said(house.unix) == "yes"


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ("Bearer fh_0", "token_unknown"),
        ("Bearer fh_00000000_" + "0" * 64, "token_unknown"),
        ("Bearer ", "token_unknown"),
        ("Basic YTpi", "authorization_malformed"),
        ("", "authorization_malformed"),
    ],
)
async def test_what_is_shown_and_does_not_hold_is_refused_everywhere(house: House, shown: str, why: str) -> None:
    metadata = (("authorization", shown),)
    assert await problem(said(house.tcp, metadata)) == why
    assert await problem(said(house.unix, metadata)) == why


async def test_another_secret_under_a_known_id_is_refused(house: House) -> None:
    text = token_of(house.sidecar.folder, "reader")
    forged = text[:-1] + ("0" if text[-1] != "0" else "1")
    assert await problem(said(house.tcp, bearer(forged))) == "token_unknown"
    assert await said(house.tcp, bearer(text)) == "yes"


async def test_two_tokens_in_one_request_are_refused(house: House) -> None:
    one = house.token("reader")
    assert await problem(said(house.tcp, (*one, *one))) == "authorization_malformed"


async def test_an_expired_token_is_refused_and_one_that_holds_longer_is_taken(house: House) -> None:
    assert await problem(said(house.tcp, house.token("reader", 0))) == "token_expired"
    assert await said(house.tcp, house.token("reader", 3600)) == "yes"


async def test_the_token_of_a_caller_that_is_not_named_is_refused(house: House) -> None:
    assert await problem(said(house.tcp, house.token("nobody"))) == "caller_unknown"


async def test_no_call_is_lost_while_a_token_is_replaced_and_the_old_one_is_refused_at_once(house: House) -> None:
    old = token_of(house.sidecar.folder, "reader")
    shown, ended = [bearer(old)], False
    done: asyncio.Queue[str] = asyncio.Queue()

    async def call_on() -> None:
        while not ended:
            done.put_nowait(await said(house.tcp, shown[0]))

    async def after(number: int) -> None:
        assert [await done.get() for _ in range(number)] == ["yes"] * number

    async with asyncio.TaskGroup() as tasks:
        for _ in range(8):
            tasks.create_task(call_on())
        for _ in range(5):
            await after(20)
            new = token_of(house.sidecar.folder, "reader")
            shown[0] = bearer(new)
            while not done.empty():
                done.get_nowait()
            await after(40)  # those that were begun with the old one have ended
            revoke(house.sidecar.folder, old)
            assert await problem(said(house.tcp, bearer(old))) == "token_unknown"
            old = new
        ended = True


async def test_a_session_is_refused_its_next_call_once_its_token_is_revoked(house: House) -> None:
    text = token_of(house.sidecar.folder, "reader")
    session = house.tcp.tools.Session(metadata=bearer(text))
    await session.write(pb.SessionRequest(call=call("say", {"text": "one"})))
    assert text_of((await session.read()).finished) == "one"
    revoke(house.sidecar.folder, text)
    await session.write(pb.SessionRequest(call=call("say", {"text": "two"})))
    answer = await session.read()
    assert (answer.refused.error.code, json.loads(answer.refused.error.details_json)) == (
        "UNAUTHENTICATED",
        {"problem": "token_unknown"},
    )
    await session.done_writing()


async def test_a_watcher_of_the_journal_is_told_nothing_once_its_token_is_revoked(house: House) -> None:
    text = token_of(house.sidecar.folder, "boss")
    watch = house.tcp.journal.WatchEvents(journal_pb.WatchEventsRequest(), metadata=bearer(text))
    await watch.read()
    await said(house.unix)
    assert (await watch.read()).events
    revoke(house.sidecar.folder, text)
    await said(house.unix)

    async def to_the_end() -> None:
        while await watch.read() is not grpc.aio.EOF:
            pass
        await watch

    assert await problem(asyncio.wait_for(to_the_end(), BOUND_S)) == "token_unknown"


async def test_a_watcher_of_approvals_is_told_nothing_once_its_token_is_revoked(house: House) -> None:
    text = token_of(house.sidecar.folder, "writer")
    watch = house.tcp.approvals.WatchApprovals(approval_pb.WatchApprovalsRequest(), metadata=bearer(text))
    while not (await watch.read()).is_current:
        pass

    async def ask(call_id: str) -> None:
        asked = call("say", {"text": "after approval"}, call_id=call_id, return_if_approval_required=True)
        await house.unix.tools.CallTool(asked, timeout=BOUND_S)

    await ask("asked-1")
    assert (await watch.read()).approval.tool == "say", "control"
    revoke(house.sidecar.folder, text)
    await ask("asked-2")
    assert await problem(watch.read()) == "token_unknown"


async def test_the_journal_names_the_caller_and_how_it_is_known(house: House) -> None:
    await said(house.tcp, house.token("writer"), call_id="by-writer")
    await said(house.unix, call_id="by-whoever")
    (start, *_) = await events_of(house, caller="writer", types=["execute_start"])
    assert start.caller == "writer"
    assert json.loads(start.body_json)["data"]["authenticated_by"] == "token"
    (start, *_) = await events_of(house, call_id="by-whoever")
    assert start.caller == "unix:"
    assert json.loads(start.body_json)["data"]["authenticated_by"] == "unix_socket"


async def test_health_is_open_to_everybody_and_reflection_to_callers_alone(house: House) -> None:
    health: Any = health_pb2_grpc.HealthStub(house.tcp.channel)
    answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=BOUND_S)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    reflection: Any = reflection_pb2_grpc.ServerReflectionStub(house.tcp.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")

    known = reflection.ServerReflectionInfo(metadata=house.token("reader"))
    await known.write(request)
    assert len((await known.read()).list_services_response.service) > 3
    await known.done_writing()
    unknown = reflection.ServerReflectionInfo()  # nothing is written: a client's write to an ended stream hides why
    assert await problem(unknown.read()) == "credentials_missing"


async def test_one_connection_watches_health_a_bounded_number_of_times(house: House) -> None:
    health: Any = health_pb2_grpc.HealthStub(house.tcp.channel)
    open_ones = [health.Watch(health_pb2.HealthCheckRequest()) for _ in range(MAX_WATCHES_OF_CONNECTION)]
    for each in open_ones:
        assert (await each.read()).status == health_pb2.HealthCheckResponse.SERVING

    async def one_more() -> None:
        watch = health.Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        await watch

    assert await refused(one_more()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_STREAMS")
    for each in open_ones:
        each.cancel()


async def test_refused_requests_are_logged_and_recorded_within_a_rate(house: House) -> None:
    began = psutil.Process(house.sidecar.process.pid).create_time()
    for _ in range(40):
        await problem(said(house.tcp))
    await said(house.unix)
    lines = [line for line in house.sidecar.log() if line["event"] == "caller_refused"]
    assert len(lines) <= LOG_BURST + LOG_PER_SECOND * (time.time() - began) + 1
    assert "fh_" not in house.sidecar.stderr()
    found = await events_of(house, types=["request_refused"])
    reasons = {json.loads(each.body_json)["data"]["reason"] for each in found}
    assert "UNAUTHENTICATED" in reasons


def test_the_file_holds_no_token_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "tokens.json"
    with changing(path) as tokens:
        text, token = make_token("agent", 60, tokens)
        tokens.append(token)
    found = TOKEN.fullmatch(text)
    assert found is not None
    assert found[2] not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    (kept,) = read_tokens(path)
    assert (kept.caller, kept.is_secret(found[2]), kept.is_secret("0" * 64)) == ("agent", True, False)
    assert kept.expires is not None
    assert 0 < kept.expires - time.time() <= 60


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 2, "tokens": []}', '{"version": 1, "tokens": [{}]}', "{" * 5000,
             '{"version": 1, "tokens": [{"token_id": 1, "caller": "a", "sha256": "b", "created": 1, "expires": null}]}']
)  # fmt: skip
def test_a_file_that_is_none_of_tokens_lets_nobody_in_and_is_told_once(tmp_path: Path, text: str) -> None:
    path, told = tmp_path / "tokens.json", []
    with changing(path) as tokens:
        good, token = make_token("agent", None, tokens)
        tokens.append(token)
    store = TokenStore(path, told.append)
    assert store.find(good)[0] is not None
    path.write_text(text)
    assert [store.find(good) for _ in range(3)] == [(None, "unknown")] * 3
    assert [type(each) for each in told] == [TokenFileError]
    with pytest.raises(TokenFileError), changing(path):
        pass
    assert path.read_text() == text


def test_a_file_that_others_may_write_lets_nobody_in_until_that_is_mended(tmp_path: Path) -> None:
    path, told = tmp_path / "tokens.json", []
    with changing(path) as tokens:
        text, token = make_token("agent", None, tokens)
        tokens.append(token)
    store = TokenStore(path, told.append)
    path.chmod(0o620)
    assert store.find(text) == (None, "unknown")
    assert "others may write it" in str(told[0])
    path.chmod(0o600)
    assert store.find(text)[0] is not None
