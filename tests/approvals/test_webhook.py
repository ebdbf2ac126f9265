"""Approvals go out signed to the operator's receiver, and its signed decisions come in as one caller's."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
import trustme
from fumehood.v1 import approval_service_pb2 as apb
from fumehood_server.cli.approval_json import approval_json
from fumehood_server.config.webhook import Receiver as ReceiverConfig
from fumehood_server.egress import HostEntry, parse_url
from fumehood_server.journal.keys import public_keys
from fumehood_server.journal.sqlite import SqliteReader
from fumehood_server.journal.verify import verify
from fumehood_server.secrets import SecretSource, SecretStore
from fumehood_server.webhook.http_server import MAX_BODY_BYTES, MAX_CONNECTIONS
from fumehood_server.webhook.receiver import NotDeliveredError, ReceiverClient
from fumehood_server.webhook.sender import POSTS

from tests.approvals.support import WITHDRAW, Client, Place, client_of
from tests.approvals.test_states import START
from tests.approvals.webhook_support import (
    BOUND_S,
    REPLY_SECRET,
    SECRET,
    Message,
    Receiver,
    Replier,
    decision_of,
    reason_of,
    signature,
    webhook_table,
    write_secrets,
)
from tests.callers.support import token_of
from tests.sidecar import Sidecar

RULES = """
[[policy.rule]]
name = "small"
permission = "allow"
tools = ["note"]
when = [{ pointer = "/amount", max = -1 }]
[[policy.rule]]
name = "named"
permission = "require_approval"
approvers = ["ada"]
when = [{ pointer = "/line", equals = "named" }]
[[policy.rule]]
name = "two"
permission = "require_approval"
approvers = ["ada", "desk"]
approvals = 2
when = [{ pointer = "/line", equals = "two" }]
[[caller]]
name = "ada"
approve = ["note"]
[[caller]]
name = "asker"
tools = ["note"]
"""
PAGE = Path(__file__).parents[2] / "docs" / "approvals.md"


@dataclass
class Served:
    place: Place
    sidecar: Sidecar
    receiver: Receiver
    replier: Replier


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name, Receiver().serving() as receiver:
        folder = Path(name)
        folder.chmod(0o755)
        place = Place(folder)
        write_secrets(folder)
        with place.sidecar(RULES + webhook_table(receiver)) as sidecar:
            yield Served(place, sidecar, receiver, Replier(sidecar))


@pytest.fixture
def served(shared: Served) -> Served:
    (shared.place.diary / "diary").unlink(missing_ok=True)
    return shared


@pytest_asyncio.fixture
async def client(shared: Served) -> AsyncIterator[Client]:
    async with client_of(shared.sidecar) as client:
        yield client
        for each in await client.list():
            await client.decide(each, WITHDRAW)


async def sent(served: Served, call_id: str) -> Message:
    return await asyncio.to_thread(served.receiver.of, call_id)


async def test_an_approval_is_sent_signed_with_what_the_command_shows(client: Client, served: Served) -> None:
    approval = await client.asked(served.place.call("as shown", "shown", at_once=True))
    message = await sent(served, "shown")
    message.check()
    assert (message.path, message.headers["content-type"]) == ("/hook", "application/json")
    assert message.approval == approval_json(approval)
    assert message.id.startswith(approval.approval_id)


async def test_a_signed_decision_lets_the_call_run_and_is_recorded_as_such(client: Client, served: Served) -> None:
    call = asyncio.create_task(client.call(served.place.call("runs", "runs")))
    approval = (await sent(served, "runs")).approval
    assert served.place.lines() == []
    reply = decision_of(approval, reason="as agreed", approver="ada@example.com")
    status, answer = await asyncio.to_thread(served.replier.post, reply)
    assert (status, answer["approval"]["state"]) == (200, "approved")
    assert not (await call).is_error
    assert served.place.lines() == ["runs"]
    (used,) = await client.list(approval["approval_id"])
    (decision,) = used.decisions
    assert (decision.by.name, decision.by.authenticated_by, decision.by.connection, decision.reason) == (
        "desk",
        "webhook",
        "webhook:ada@example.com",
        "as agreed",
    )
    with contextlib.closing(SqliteReader(served.place.folder / ".fumehood" / "journal.db")) as reader:
        assert verify(reader, public_keys(served.place.folder / ".fumehood")).fault is None


async def test_a_signed_denial_ends_the_call(client: Client, served: Served) -> None:
    call = asyncio.create_task(client.call(served.place.call("denied", "denied")))
    approval = (await sent(served, "denied")).approval
    status, answer = await asyncio.to_thread(served.replier.post, decision_of(approval, "deny", reason="no"))
    assert (status, answer["approval"]["state"]) == (200, "denied")
    assert ((await call).error.code, served.place.lines()) == ("TOOL_DENIED", [])


async def test_what_is_not_taken_is_sent_again_and_redirects_lead_nowhere(client: Client, served: Served) -> None:
    served.receiver.answers.extend([500, 307])
    calls = ("first", "second")
    served.receiver.go_on.clear()  # until both have come: neither is sent again before that
    try:
        for each in calls:
            await client.asked(served.place.call(each, each, at_once=True))
        messages = [await asyncio.to_thread(served.receiver.next) for _ in calls]
    finally:
        served.receiver.go_on.set()
    messages += [await asyncio.to_thread(served.receiver.next) for _ in calls]
    for message in messages:
        message.check()
    assert {each.path for each in messages} == {"/hook"}
    by_call = [[each.id for each in messages if each.approval["call_id"] == call] for call in calls]
    assert [(len(ids), len(set(ids))) for ids in by_call] == [(2, 1), (2, 1)]


async def test_only_what_is_signed_fresh_and_allowed_decides(client: Client, served: Served) -> None:
    await client.asked(served.place.call("guarded", "guarded", at_once=True))
    approval = (await sent(served, "guarded")).approval
    good = decision_of(approval)
    other = signature(REPLY_SECRET, "another", "1", b"{}")
    no_key = {"webhook_signature": "v1,"}
    unauthenticated, invalid = (401, "UNAUTHENTICATED"), (422, "REQUEST_INVALID")

    def answers() -> dict[str, tuple[tuple[int, str], tuple[int, str]]]:
        post = served.replier.post
        found = {
            "another key": (post(good, key=SECRET), unauthenticated),
            "another message's signature": (post(good, webhook_signature=other), unauthenticated),
            "an empty one": (post(good, **no_key), unauthenticated),
            "a later version's": (post(good, webhook_signature="v2,AAAA"), unauthenticated),
            "another id": (post(good, "one", webhook_id="two"), unauthenticated),
            "no id": (post(good, "one", webhook_id=""), unauthenticated),
            "too old": (post(good, age_s=310), unauthenticated),
            "too new": (post(good, age_s=-310), unauthenticated),
            "no number": (post(good, webhook_timestamp="1e9"), unauthenticated),
            "a wrong digest": (post({**good, "digest": "0" * 64}), (409, "APPROVAL_CHANGED")),
            "no digest": (post({**good, "digest": ""}), invalid),
            "another approval": (post({**good, "approval_id": "approval-1"}), (404, "APPROVAL_NOT_FOUND")),
            "a choice that is none": (post({**good, "choice": "edit"}), invalid),
            "arguments": (post({**good, "arguments_json": "{}"}), invalid),
            "an approver with a line break": (post({**good, "approver": "ada\n"}), invalid),
            "a long reason": (post({**good, "reason": "x" * 5000}), invalid),
            "a surrogate": (post(b'{"approval_id": "\\ud800", "choice": "deny", "digest": "x"}'), invalid),
            "no object": (post(b"[]"), invalid),
            "no JSON": (post(b"{"), invalid),
            "another path": (post(good, path="/approvals"), (404, "REQUEST_INVALID")),
            "another method": (post(good, method="PUT"), (405, "REQUEST_INVALID")),
            "chunks": (post(good, transfer_encoding="chunked"), (411, "REQUEST_INVALID")),
            "a long body": (post(good, content_length=str(MAX_BODY_BYTES + 1)), (413, "REQUEST_INVALID")),
        }
        return {name: (reason_of(answer), wanted) for name, (answer, wanted) in found.items()}

    found = await asyncio.to_thread(answers)
    assert {name: got for name, (got, wanted) in found.items() if got != wanted} == {}
    (still,) = await client.list(approval["approval_id"])
    assert still.state == apb.APPROVAL_STATE_PENDING
    status, _ = await asyncio.to_thread(served.replier.post, good, age_s=290)
    assert status == 200


async def test_who_may_not_approve_this_call_may_not_by_webhook(client: Client, served: Served) -> None:
    await client.asked(served.place.call("named", "named", at_once=True))
    approval = (await sent(served, "named")).approval
    refused = await asyncio.to_thread(served.replier.post, decision_of(approval, approver="ada"))
    assert reason_of(refused) == (403, "APPROVAL_NOT_ALLOWED")
    status, _ = await asyncio.to_thread(served.replier.post, decision_of(approval, "deny"))
    assert status == 200


@pytest.mark.usefixtures("client")
async def test_arguments_that_an_approver_changes_are_sent_under_another_id(served: Served) -> None:
    async with client_of(served.sidecar, token=token_of(served.place.folder, "asker")) as asker:
        asked = await asker.asked(served.place.call("two", "two", at_once=True))
    before = await sent(served, "two")
    async with client_of(served.sidecar, token=token_of(served.place.folder, "ada")) as ada:
        await ada.decide(asked, arguments_json=served.place.arguments("two", 7))
    after = await sent(served, "two")
    after.check()
    assert after.id != before.id
    assert [after.approval["arguments"]["amount"], len(after.approval["decisions"])] == [7, 1]
    refused = await asyncio.to_thread(served.replier.post, decision_of(before.approval))
    assert reason_of(refused) == (409, "APPROVAL_CHANGED")
    status, answer = await asyncio.to_thread(served.replier.post, decision_of(after.approval))
    assert (status, answer["approval"]["state"]) == (200, "approved")


async def test_an_id_is_taken_once_and_what_is_decided_stays_decided(client: Client, served: Served) -> None:
    approvals = []
    for each in ("once", "twice"):
        await client.asked(served.place.call(each, each, at_once=True))
        approvals.append((await sent(served, each)).approval)
    first, second = map(decision_of, approvals)

    def answers() -> list[int | tuple[int, str]]:
        post = served.replier.post
        return [
            post(first, "an-id")[0],
            reason_of(post(first, "an-id")),
            reason_of(post(second, "an-id")),
            reason_of(post(first, "another-id")),
            post(second, "a-third-id")[0],
        ]

    used = (409, "WEBHOOK_ID_USED")
    assert await asyncio.to_thread(answers) == [200, used, used, (409, "APPROVAL_CLOSED"), 200]


async def test_a_receiver_that_hangs_holds_up_no_call(client: Client, served: Served) -> None:
    served.receiver.go_on.clear()
    try:
        asked = [await client.asked(served.place.call(f"h{n}", f"h{n}", at_once=True)) for n in range(POSTS + 1)]
        for _ in range(POSTS):
            await asyncio.to_thread(served.receiver.next)
        assert not (await client.call(served.place.call("free", "free", amount=-1))).is_error
        call = asyncio.create_task(client.call(served.place.call("h0", "h0")))
        await client.decide(asked[0])
        assert not (await call).is_error
        assert served.place.lines() == ["free", "h0"]
    finally:
        served.receiver.go_on.set()


async def test_connections_that_say_nothing_are_bounded_and_hold_up_no_call(client: Client, served: Served) -> None:
    host, _, port = served.replier.address.rpartition(":")
    silent = [socket.create_connection((host, int(port)), timeout=BOUND_S) for _ in range(MAX_CONNECTIONS)]
    try:
        with socket.create_connection((host, int(port)), timeout=BOUND_S) as one_more:
            assert await asyncio.to_thread(ended, one_more)
        assert not (await client.call(served.place.call("quiet", "quiet", amount=-1))).is_error
    finally:
        for each in silent:
            each.close()


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


async def test_a_restart_sends_what_waits_again_under_the_same_id() -> None:
    with tempfile.TemporaryDirectory(prefix="fh-") as name, Receiver().serving() as receiver:
        folder = Path(name)
        folder.chmod(0o755)
        place = Place(folder)
        write_secrets(folder)
        with place.sidecar(webhook_table(receiver)) as sidecar:
            async with client_of(sidecar) as client:
                await client.asked(place.call("again", "again", at_once=True))
            first = await asyncio.to_thread(receiver.next)
            sidecar.signal(signal.SIGKILL)
            sidecar.wait()
        with place.sidecar(webhook_table(receiver, listen="unix:reply.sock", approve="other")) as sidecar:
            second = await asyncio.to_thread(receiver.next)
            second.check()
            assert (second.id, second.approval) == (first.id, first.approval)
            assert (folder / "reply.sock").stat().st_mode & 0o777 == 0o600
            post = Replier(sidecar).post
            refused = await asyncio.to_thread(post, decision_of(second.approval))
            assert reason_of(refused) == (404, "APPROVAL_NOT_FOUND")
            async with client_of(sidecar) as client:
                (approval,) = await client.list()
                await client.decide(approval)
                assert not (await client.call(place.call("again", "again"))).is_error
                # A receiver that hangs does not hold up the end of the sidecar either.
                receiver.go_on.clear()
                await client.asked(place.call("hangs", "hangs", at_once=True))
                await asyncio.to_thread(receiver.of, "hangs")


async def test_the_page_s_receiver_decides(served: Served, client: Client, tmp_path: Path) -> None:
    code = next(
        block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "webhook-id" in block
    )
    script = tmp_path / "receiver.py"
    script.write_text(code)
    kept = socket.socket()  # bound while the script runs, so that nobody else is given its port
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    port = kept.getsockname()[1]
    environment = {
        **os.environ,
        "SECRET": SECRET.decode(),
        "REPLY_SECRET": REPLY_SECRET.decode(),
        "SIDECAR": f"http://{served.replier.address}",
        "PORT": str(port),
    }
    command = [sys.executable, str(script)]
    with kept, subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:  # noqa: ASYNC220 - at once
        try:
            calls = {}
            for name, amount in (("cheap", 5), ("dear", 5000)):
                calls[name] = asyncio.create_task(client.call(served.place.call(name, name, amount=amount)))
                message = await sent(served, name)
                await asyncio.to_thread(hand_on, message, port)
            assert (await calls["cheap"]).is_error is False
            assert (await calls["dear"]).error.code == "TOOL_DENIED"
        finally:
            process.terminate()
    assert served.place.lines() == ["cheap"]


def hand_on(message: Message, port: int) -> None:
    """Send the page's receiver what the sidecar sent to ours, once it listens."""
    deadline = time.monotonic() + BOUND_S
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=BOUND_S)
        try:
            connection.request("POST", "/hook", message.body, dict(message.headers))
            assert connection.getresponse().status == 204
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        else:
            return
        finally:
            connection.close()


async def test_tls_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    write_secrets(tmp_path)
    with Receiver().serving(context) as receiver:
        url = parse_url(f"https://127.0.0.1:{receiver.port}/hook")
        authority, private = HostEntry(url.host, url.port), ("127.0.0.1",)
        config = ReceiverConfig(url=str(url), authority=authority, secret="out", private=private)  # noqa: S106 - its name
        secrets = SecretStore({"out": SecretSource(name="out", file=tmp_path / "out")})
        with pytest.raises(NotDeliveredError) as refused:
            await ReceiverClient(config, secrets).post("an-id", START)
        assert refused.value.outcome == "tls_failed"
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        await ReceiverClient(config, secrets).post("an-id", START)
        receiver.next().check()
