"""Before a call hooks allow it, deny it or change its arguments; what they leave is validated and permitted anew."""

from __future__ import annotations

import asyncio

import pytest
from fumehood.v1 import hook_service_pb2 as hpb
from fumehood.v1 import tool_service_pb2 as pb

from tests.hooks.support import Client, allow, arguments, deny, details, output
from tests.journal.reading import Recorded, data
from tests.sidecar import Sidecar


async def test_a_hook_is_told_of_the_call_and_lets_it_run(client: Client) -> None:
    async with client.serving("first") as hook, client.serving("second"):
        assert output(await client.call("say", "told", text="a", times="2")) == {"said": "aa"}
    call = hook.asked[0].call
    assert (call.call_id, call.tool, call.plugin, call.arguments_json) == (
        "told",
        "say",
        "house",
        '{"text":"a","times":2}',
    )
    assert (call.caller, call.authenticated_by) == ("", "unix_socket")
    assert 50 < hook.asked[0].timeout.seconds + hook.asked[0].timeout.nanos / 1e9 <= 60
    assert [each.HasField("result") for each in hook.asked] == [False, True]


async def test_a_denial_ends_the_call_and_names_hook_and_reason(client: Client, sidecar: Sidecar) -> None:
    async with client.serving("first", deny("not on Sundays")), client.serving("second") as second:
        found = await client.call("say", "denied", text="a")
        assert (found.error.code, found.attempts) == ("TOOL_DENIED", 0)
        assert details(found) == {
            "reason": "hook_denied",
            "hook": "first",
            "kind": "hook",
            "stage": "before",
            "note": "not on Sundays",
        }
        assert second.asked == [], "what is denied is not asked about any further"
    events = await Recorded(sidecar.folder).call_until("denied", "execute_end")
    assert [each["type"] for each in events] == ["execute_start", "hook_decided", "execute_end"]
    (said,) = data(events, "hook_decided")
    assert (said["choice"], said["reason"], said["proceeds"]) == ("deny", "not on Sundays", False)
    assert Recorded(sidecar.folder).verified().fault is None


async def test_each_hook_sees_what_the_earlier_ones_left_and_the_journal_has_it_all(
    client: Client, sidecar: Sidecar
) -> None:
    async with (
        client.serving("first", arguments("louder", text="b", times="3")),
        client.serving("second", arguments(text="c")) as second,
    ):
        found = await client.call("say", "changed", text="a")
        assert output(found) == {"said": "ccc"}
        assert [each.rule for each in found.coercions] == ["number"], "what a hook writes is mended as the caller's"
        assert second.asked[0].call.arguments_json == '{"text":"b","times":3}'
        again = await client.call("say", "changed", text="a")
        assert output(again) == {"said": "ccc"}, "its id stands for the call as its caller made it"
    events = await Recorded(sidecar.folder).call_until("changed", "execute_end")
    said = data(events, "hook_decided")
    assert [(each["hook"], each["stage"], each["choice"]) for each in said] == [
        ("first", "before", "change"),
        ("second", "before", "change"),
        ("second", "after", "allow"),
        ("first", "after", "allow"),
    ]
    (start,) = data(events, "execute_start")
    hashes = [start["asked_hash"], said[0]["left_hash"], said[1]["left_hash"]]
    assert hashes == [said[0]["arguments_hash"], said[1]["arguments_hash"], start["arguments_hash"]]
    assert len({*hashes}) == 3
    assert said[0]["seen"]["kept"]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ('{"text":1,"times":[]}', 1),
        ("[]", 1),
        ("{", 1),
        ("", 1),
        ('{"text":"' + "a" * 1024 * 1024 + '"}', None),
    ],
)
async def test_arguments_that_a_hook_makes_invalid_end_the_call_in_the_hooks_name(
    client: Client, text: str, faults: int | None
) -> None:
    changed = hpb.HookAnswer(change_arguments=hpb.HookChangeArguments(arguments_json=text))
    async with client.serving("first", lambda _: changed), client.serving("second") as second:
        found = await client.call("say", text="a")
    assert (found.error.code, found.attempts, found.error.retryable) == ("TOOL_UNAVAILABLE", 0, False)
    told = details(found)
    assert (told["reason"], told["hook"], told["stage"]) == ("hook_failed", "first", "before")
    assert (len(told["arguments"]) >= faults) if faults else told["limit"] == "max_arguments_bytes"
    assert second.asked == []


async def test_rules_decide_about_what_a_hook_leaves(client: Client) -> None:
    async with client.serving("first", arguments(text="never")), client.serving("second"):
        found = await client.call("say", text="always")
    assert (found.error.code, details(found)["rules"], details(found)["hook"]) == ("TOOL_DENIED", ["never"], "first")
    async with client.serving("first", arguments(text="always")), client.serving("second"):
        assert (await client.call("say", text="never")).error.code == "TOOL_DENIED", "and about what the caller asked"


async def test_streams_of_one_hook_take_turns(client: Client) -> None:
    async with client.serving("quick") as one, client.serving("quick") as two:
        for _ in range(4):
            assert not (await client.call("show", text="a")).is_error
        assert (await client.listed())["quick"].connections == 2
    assert len(one.asked) == len(two.asked) == 4


async def test_a_call_that_is_cancelled_is_asked_about_no_longer(client: Client) -> None:
    hook = await client.connect("first")
    call = asyncio.create_task(client.call("say", "cancelled", text="a"))
    question = await hook.question()
    await client.tools.CancelCall(pb.CancelCallRequest(call_id="cancelled"))
    assert (await call).error.code == "CANCELLED_SIGNAL"
    await hook.answer(question, allow(question))  # too late, and no reason to end the stream
    other = asyncio.create_task(client.call("say", text="b"))
    for _ in range(2):
        question = await hook.question()
        await hook.answer(question, allow(question))
    assert output(await other) == {"said": "b"}, "the other hook is gone, which leaves the call alone"
    hook.stream.cancel()
    await client.until_gone("first")
