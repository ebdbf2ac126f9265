"""A call runs while its quotas have enough left, and not one more: through kills, retries, repeats and reloads."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest
from fumehood.v1 import plugin_service_pb2 as ppb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_server.journal.encoding import decode
from fumehood_server.journal.keys import public_keys
from fumehood_server.journal.sqlite import SqliteReader
from fumehood_server.journal.store import EventFilter
from fumehood_server.journal.verify import verify

from tests.postgresql import PostgresServer
from tests.quotas.support import Bank, bank, client_of, code_of, result_of
from tests.rpc.support import BOUND_S, ToolClient
from tests.sidecar import Sidecar


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Bank, Sidecar]]:
    with bank() as made, made.sidecar() as sidecar:
        yield made, sidecar


@pytest.fixture
def teller(shared: tuple[Bank, Sidecar]) -> Bank:
    return shared[0]


@pytest.fixture
async def client(shared: tuple[Bank, Sidecar]) -> AsyncIterator[ToolClient]:
    async with client_of(shared[1]) as made:
        yield made


async def started(client: ToolClient, call_id: str) -> None:
    """Return once a call is under way."""
    async with asyncio.timeout(BOUND_S):
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await client.tools.GetCall(pb.GetCallRequest(call_id=call_id))
                return
            await asyncio.sleep(0.005)


async def test_a_sum_is_spent_to_the_last_cent_and_hostile_amounts_refill_nothing(
    client: ToolClient, teller: Bank
) -> None:
    before = len(teller.paid())
    steps = [
        ("60", ""),
        ("41", "spend"),
        ("-50", "spend"),
        ("1e308", "spend"),
        ("", "spend"),
        ("null", "spend"),
        ("9" * 5_000, "TOOL_EXECUTION_FAILED"),  # the schema's number is at most as large as a double's
        ("39.9999999999999999", ""),
        ("0.0000000000000002", "spend"),
        ("0.0000000000000001", ""),
        ("1e-300", "spend"),
        ("0", ""),
    ]
    said = [(amount, await code_of(client, teller.pay(amount, "sum"))) for amount, _ in steps]
    assert said == steps
    assert len(teller.paid()) == before + 4
    # Another session has another budget.
    assert await code_of(client, teller.pay("100", "sum-2")) == ""


async def test_a_refusal_names_the_quota_what_is_left_and_when_it_refills(client: ToolClient, teller: Bank) -> None:
    assert await code_of(client, teller.pay("60.50", "told")) == ""
    refused = (await result_of(client, teller.pay("40", "told", "told-1"))).error
    details = json.loads(refused.details_json)
    retry_after_s, free_at_us = details.pop("retry_after_s"), details.pop("free_at_us")
    assert (refused.code, refused.retryable) == ("TOOL_QUOTA_EXCEEDED", True)
    assert details == {
        "reason": "quota_exceeded",
        "quota": "spend",
        "counts": "sum",
        "per": {"caller": "", "session": "told"},
        "limit": "100",
        "left": "39.5",
        "wanted": "40",
        "window_s": 86_400,
    }
    assert 0 < retry_after_s <= 86_400
    assert free_at_us > 0
    never = (await result_of(client, teller.pay("100.01", "told"))).error
    assert (never.retryable, "retry_after_s" in json.loads(never.details_json)) == (False, False)
    # Nothing is recorded as the outcome of its id: less of it may come again, and runs.
    assert await code_of(client, teller.pay("39.5", "told", "told-1")) == ""


async def test_a_repeated_call_is_counted_once_and_so_are_its_attempts(client: ToolClient, teller: Bank) -> None:
    for _ in range(3):
        assert await code_of(client, teller.pay("100", "again", "again-1")) == ""
    assert await code_of(client, teller.pay("0.01", "again")) == "spend"
    retried = teller.hold("", "retried", "transient", retry=pb.RetryPolicy(max_attempts=3))
    assert (await result_of(client, retried)).attempts == 3
    teller.let_go("retried")
    said = [await code_of(client, teller.hold("retried", "retried")) for _ in range(4)]
    assert said == ["", "", "", "tries"]


async def test_a_place_is_free_again_after_success_failure_and_cancellation(client: ToolClient, teller: Bank) -> None:
    async def held(name: str) -> asyncio.Task[str]:
        task = asyncio.create_task(code_of(client, teller.hold(name, "flight", call_id=name)))
        await started(client, name)
        return task

    first, second = await held("flight-1"), await held("flight-2")
    teller.let_go("flight-3")
    third = (await result_of(client, teller.hold("flight-3", "flight", call_id="flight-3"))).error
    assert (third.retryable, json.loads(third.details_json)["left"]) == (True, "0")
    assert await code_of(client, teller.hold("flight-3", "other")) == ""
    teller.let_go("flight-1")
    assert await first == ""
    assert await code_of(client, teller.hold("", "flight", "fails")) == "TOOL_EXECUTION_FAILED"
    await client.tools.CancelCall(pb.CancelCallRequest(call_id="flight-2"))
    assert await second == "CANCELLED_SIGNAL"
    assert await code_of(client, teller.hold("flight-3", "flight", call_id="flight-3")) == ""
    # Whatever became of them, calls that have begun were counted.
    assert await code_of(client, teller.hold("flight-3", "flight")) == "tries"


async def test_results_count_at_the_end_and_the_next_call_waits(client: ToolClient, teller: Bank) -> None:
    def say(times: int) -> pb.CallToolRequest:
        return teller.request("say", json.dumps({"text": "a", "times": times}), "size")

    assert [await code_of(client, say(times)) for times in (400, 3_000, 0)] == ["", "", "size"]
    assert await code_of(client, teller.request("say", json.dumps({"text": "a" * 2_000, "times": 0}), "s")) == "size"


async def test_of_200_calls_at_once_exactly_as_many_run_as_the_quota_has(client: ToolClient, teller: Bank) -> None:
    calls = [teller.request("look", json.dumps({"number": number}), "burst") for number in range(200)]
    said = Counter(await asyncio.gather(*(code_of(client, each) for each in calls)))
    assert said == {"": 50, "looks": 150}


async def test_refusals_are_events_and_the_journal_verifies(
    client: ToolClient, teller: Bank, shared: tuple[Bank, Sidecar]
) -> None:
    assert await code_of(client, teller.pay("101", "event", "event-1")) == "spend"
    assert await code_of(client, teller.pay("1", "event")) == ""  # what is recorded before it is on disk then
    folder = shared[1].folder / ".fumehood"
    with contextlib.closing(SqliteReader(folder / "journal.db")) as reader:
        events = [
            decode(each.body) for each in reader.events(EventFilter(types=frozenset({"quota_refused"})), limit=1000)
        ]
        (found,) = [each["data"] for each in events if each["data"]["call_id"] == "event-1"]
        caller = found.pop("caller")
        assert found == {
            "quota": "spend",
            "counts": "sum",
            "per": {"caller": "", "session": "event"},
            "limit": "100",
            "used": "0",
            "wanted": "101",
            "free_us": None,
            "call_id": "event-1",
        }
        assert caller.startswith("unix:")
        assert reader.calls(["event-1"]) == {}
        assert verify(reader, public_keys(folder)).fault is None


async def killed(sidecar: Sidecar) -> None:
    sidecar.process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(sidecar.process.wait, BOUND_S)


async def test_kills_in_the_middle_never_let_more_through() -> None:
    """What is counted is on disk before a call runs; what was in flight has an outcome before the next begins."""

    async def spent(client: ToolClient, teller: Bank) -> str:
        while not (code := await code_of(client, teller.pay("5", "kill"))):
            pass
        return code

    with bank() as teller:
        for kill_after in (5, 10, None):
            with teller.sidecar() as sidecar:
                async with client_of(sidecar) as client:
                    # Two of them are in flight when the sidecar is killed.
                    holds = [
                        asyncio.create_task(code_of(client, teller.hold(f"never-{number}", f"hold-{kill_after}")))
                        for number in range(3)
                    ]
                    done, _ = await asyncio.wait(holds, return_when=asyncio.FIRST_COMPLETED)
                    assert [each.result() for each in done] == ["at-once"]
                    spenders = [asyncio.create_task(spent(client, teller)) for _ in range(4)]
                    if kill_after is None:
                        assert await asyncio.gather(*spenders) == ["spend"] * 4
                        teller.let_go("free")
                        said = [await code_of(client, teller.hold("free", "hold-10")) for _ in range(2)]
                        assert said == ["", ""]
                    else:
                        async with asyncio.timeout(BOUND_S):
                            while len(teller.paid()) < kill_after:  # noqa: ASYNC110 - a process writes that
                                await asyncio.sleep(0.002)
                        await killed(sidecar)
                    for each in holds:
                        each.cancel()
                    await asyncio.gather(*spenders, *holds, return_exceptions=True)
        # A kill loses those that were counted, and had not paid yet.
        assert 20 - 2 * 4 <= len(teller.paid()) <= 20


APPROVED = """
[[policy.quota]]
name = "pays"
tools = ["pay"]
calls = {calls}
window = "1d"
"""


async def test_a_call_refused_after_its_approval_uses_it_once_a_reload_gives_more() -> None:
    from tests.approvals.support import client_of as approver_of  # noqa: PLC0415

    with bank() as teller, teller.sidecar(APPROVED.format(calls=1), permission="require_approval") as sidecar:
        async with approver_of(sidecar) as client:
            for name in ("first", "second"):
                await client.decide(await client.asked(teller.pay("1", "", name, return_if_approval_required=True)))
            assert (await client.call(teller.pay("1", "", "first"))).error.code == ""
            for _ in range(2):
                assert (await client.call(teller.pay("1", "", "second"))).error.code == "TOOL_QUOTA_EXCEEDED"
            path = sidecar.folder / "fumehood.toml"
            path.write_text(path.read_text().replace("calls = 1", "calls = 2"))
            await client.plugins.ReloadConfig(ppb.ReloadConfigRequest())
            assert (await client.call(teller.pay("1", "", "second"))).error.code == ""
            # What was counted under the old limit counts under the new one.
            await client.decide(await client.asked(teller.pay("1", "", "third", return_if_approval_required=True)))
            assert (await client.call(teller.pay("1", "", "third"))).error.code == "TOOL_QUOTA_EXCEEDED"
        assert teller.paid() == ["1.0", "1.0"]


async def test_two_sidecars_on_one_database_let_through_what_one_would(postgres_server: PostgresServer) -> None:
    more = f"""
[journal]
store = "{postgres_server.new_database()}"
[[policy.quota]]
name = "pays"
tools = ["pay"]
calls = 50
window = "1d"
[[policy.quota]]
name = "looks"
tools = ["look"]
calls = 30
window = "1d"
"""
    with bank() as teller, teller.sidecar(more, at="a") as one, teller.sidecar(more, at="b") as other:
        async with client_of(one) as first, client_of(other) as second:
            both = (first, second)
            pays = [code_of(both[number % 2], teller.pay("1")) for number in range(200)]
            looks = [code_of(both[number % 2], teller.request("look", "{}")) for number in range(100)]
            said = Counter(await asyncio.gather(*pays, *looks))
        assert said == {"": 80, "pays": 150, "looks": 70}
        assert len(teller.paid()) == 50
