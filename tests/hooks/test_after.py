"""After a call hooks keep its result, change it or withhold it; what the tool did stands, and is recorded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fumehood.v1 import tool_service_pb2 as pb

from tests.hooks.support import Client, Decide, allow, deny, details, output, result, text
from tests.journal.reading import Recorded, data
from tests.sidecar import Sidecar


async def test_results_are_changed_from_the_last_hook_to_the_first(client: Client) -> None:
    async with (
        client.serving("first", result(details={"said": "one"})) as first,
        client.serving("second", result("hidden", details={"said": "two"}, terminate=True)) as second,
    ):
        found = await client.call("say", text="a")
    assert (output(found), text(found), found.terminate) == ({"said": "one"}, '{"said": "one"}', True)
    assert second.asked[1].result.details_json == '{"said":"a"}'
    assert (first.asked[1].result.details_json, first.asked[1].result.terminate) == ('{"said": "two"}', True)
    assert first.asked[1].call.arguments_json == '{"text": "a","times":1}'


async def test_a_hook_ends_a_run_and_leaves_the_result(client: Client) -> None:
    async with client.serving("quick", result(terminate=True)):
        found = await client.call("show", text="a")
    assert (text(found), found.terminate) == ("a", True)


def after(decide: Decide) -> Decide:
    return lambda asked: decide(asked) if asked.HasField("result") else allow(asked)


@pytest.mark.parametrize(
    ("tool", "decide", "reason"),
    [
        ("say", after(deny("private")), "hook_denied"),
        ("say", result(details={"said": 1}), "hook_failed"),
        ("say", result("no structured output"), "hook_failed"),
        ("show", result("a" * 1_900_000), "hook_failed"),
        ("show", after(lambda _: None), "hook_gone"),
    ],
)
async def test_a_result_is_withheld_where_a_hook_says_so_or_fails(
    client: Client, tool: str, decide: Decide, reason: str
) -> None:
    hook = "first" if tool == "say" else "quick"
    async with client.serving(hook, decide), client.serving("second"):
        found = await client.call(tool, text="a secret")
    told = details(found)
    assert (told["reason"], told["hook"], told["stage"], told["tool_finished"]) == (reason, hook, "after", True)
    assert (found.attempts, found.error.retryable) == (1, False)
    assert "a secret" not in str(found)


async def test_a_failure_stays_one(client: Client) -> None:
    async with client.serving("quick", result("try another one")) as hook:
        found = await client.call("show", text="fail")
        assert (found.error.code, text(found)) == ("TOOL_EXECUTION_FAILED", "try another one")
    assert hook.asked[1].result.error.message == "it broke"
    async with client.serving("quick", result(details={"said": "fine"})):
        assert details(await client.call("show", text="fail"))["reason"] == "hook_failed"


@pytest.mark.parametrize(("decide", "choice"), [(result(details=7), "change"), (after(deny("no")), "deny")])
async def test_of_a_tool_with_effects_the_journal_keeps_what_it_answered_and_what_its_caller_got(
    client: Client, sidecar: Sidecar, decide: Decide, choice: str
) -> None:
    folder: Path = sidecar.folder / "notes"
    (folder / "diary").unlink(missing_ok=True)
    async with client.serving("notes", decide):
        found = await client.call("note", f"noted-{choice}", folder=str(folder), line="a")
    assert (folder / "diary").read_text() == "a\n", "it has run"
    if choice == "change":
        assert output(found) == 7
    recorded = Recorded(sidecar.folder)
    events = await recorded.call_until(f"noted-{choice}", "execute_end")
    assert [each["type"] for each in events] == ["execute_start", "execute_attempt", "hook_decided", "execute_end"]
    (said,), (end,) = data(events, "hook_decided"), data(events, "execute_end")
    assert (said["choice"], said["seen"]["kept"], end["result"]["kept"]) == (choice, True, True)
    assert said["seen"]["sha256"] != end["result"]["sha256"]
    if choice == "change":
        assert said["left_hash"] == end["result"]["sha256"]
    assert recorded.verified().fault is None


async def test_without_the_hook_the_result_of_a_tool_with_effects_is_withheld_and_no_repetition_runs_it(
    client: Client, sidecar: Sidecar
) -> None:
    folder = sidecar.folder / "notes"
    (folder / "diary").unlink(missing_ok=True)
    for _ in range(2):
        found = await client.call("note", "gone", folder=str(folder), line="a")
        assert details(found)["reason"] == "hook_gone"
    assert (folder / "diary").read_text() == "a\n"


async def test_a_cancelled_call_is_told_that_its_tool_had_finished(client: Client, sidecar: Sidecar) -> None:
    hook = await client.connect("notes")
    folder = str(sidecar.folder / "notes")
    call = asyncio.create_task(client.call("note", "cut", folder=folder, line="a"))
    await hook.question()
    await client.tools.CancelCall(pb.CancelCallRequest(call_id="cut"))
    found = await call
    assert (found.error.code, details(found)["tool_finished"]) == ("CANCELLED_SIGNAL", True)
    hook.stream.cancel()
    await client.until_gone("notes")
    (said,) = data(await Recorded(sidecar.folder).call_until("cut", "execute_cancelled"), "hook_decided")
    assert (said["choice"], said["reason"], said["seen"]["kept"]) == ("gone", "call_ended", True)
