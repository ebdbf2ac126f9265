"""Calls, several at a time, and what ends them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from .client import PluginClient, plugin, texts

HELLO = {"readable_paths": ["/data/in"], "writable_paths": ["/data/out", "/notes"]}


@pytest.fixture
def kitchen(tmp_path: Path) -> Iterator[PluginClient]:
    with plugin(tmp_path) as client:
        client.hello(**HELLO)
        yield client


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginClient]:
    """For tests of calls that leave nothing behind."""
    with plugin(tmp_path_factory.mktemp("shared")) as client:
        client.hello(**HELLO)
        yield client


def test_a_call_is_answered_with_details_and_text(shared: PluginClient) -> None:
    result = shared.call("echo", '{"text": "hé"}')
    assert json.loads(result.details_json) == "hé"
    assert texts(result.content) == ["hé"]
    assert not result.HasField("error")


def test_blocks_are_sent_in_order_with_details_and_the_hint_to_stop(shared: PluginClient) -> None:
    result = shared.call("blocks")
    assert [block.WhichOneof("block") for block in result.content] == ["text", "text", "blob"]
    assert result.content[2].blob.data == b"\x00\xff"
    assert result.content[2].blob.media_type == "image/png"
    assert (result.details_json, result.terminate) == ("[1,2]", True)


def test_the_context_holds_what_the_sidecar_said(shared: PluginClient) -> None:
    from fumehood.v1.tool_pb2 import CallContext  # noqa: PLC0415

    context = CallContext(request_id="r-1", caused_by="é" * 100)
    result = shared.call("seen", attempt=3, call_id="c-9", context=context)
    assert json.loads(result.details_json) == {
        "attempt": 3,
        "call_id": "c-9",
        "has_time": True,
        "readable_paths": ["/data/in"],
        "writable_paths": ["/data/out", "/notes"],
        "request_id": "r-1",
        "caused_by": "é" * 100,
    }


def test_each_of_many_calls_gets_its_own_answer_once(kitchen: PluginClient) -> None:
    expected = {}
    for turn in range(300):
        tool = "echo_async" if turn % 3 == 0 else "echo"
        expected[kitchen.invoke(tool, json.dumps({"text": f"t{turn}"}))] = f"t{turn}"
        if turn % 8 == 7:
            for invocation_id in list(expected):
                assert json.loads(kitchen.result(invocation_id).details_json) == expected.pop(invocation_id)
    for invocation_id, text in expected.items():
        assert json.loads(kitchen.result(invocation_id).details_json) == text
    kitchen.end_input()
    assert kitchen.rest() == []


def test_quick_calls_pass_slow_ones_whether_or_not_they_were_known_to_be_slow(shared: PluginClient) -> None:
    for _ in range(2):
        slow = [shared.invoke("wait_politely") for _ in range(3)]
        for invocation_id in slow:
            shared.wait("update", invocation_id)
        assert json.loads(shared.call("echo", '{"text": "quick"}').details_json) == "quick"
        for invocation_id in slow:
            assert not shared.kept("result", invocation_id)
            shared.cancel(invocation_id, grace_ms=10_000)
            shared.result(invocation_id)


def test_quick_calls_pass_one_that_computes(shared: PluginClient) -> None:
    spinning = shared.invoke("spin")
    shared.wait("update", spinning)
    for _ in range(5):
        assert json.loads(shared.call("echo", '{"text": "quick"}').details_json) == "quick"
    shared.cancel(spinning)
    assert shared.result(spinning).error.reason == "cancelled"


def test_more_calls_than_agreed_are_refused_as_retryable(shared: PluginClient) -> None:
    slow = [shared.invoke("wait_politely") for _ in range(8)]
    for invocation_id in slow:
        shared.wait("update", invocation_id)
    refused = shared.call("echo", '{"text": "one too many"}').error
    assert (refused.reason, refused.retryable) == ("too_many_calls", True)
    for invocation_id in slow:
        shared.cancel(invocation_id)
        shared.result(invocation_id)
    assert not shared.call("echo", '{"text": "room again"}').HasField("error")


@pytest.mark.parametrize("tool", ["wait_politely", "sleep", "spin", "chatter", "stubborn", "wait_async"])
def test_a_cancelled_call_ends_once_and_the_process_serves_on(kitchen: PluginClient, tool: str) -> None:
    for _ in range(3):
        invocation_id = kitchen.invoke(tool)
        kitchen.wait("update", invocation_id)
        kitchen.cancel(invocation_id)
        kitchen.cancel(invocation_id)
        result = kitchen.result(invocation_id)
        if tool not in {"wait_politely", "stubborn"}:
            assert result.error.reason == "cancelled"
        for turn in range(20):
            assert json.loads(kitchen.call("echo", json.dumps({"text": str(turn)})).details_json) == str(turn)
    kitchen.end_input()
    assert [frame for frame in kitchen.rest() if frame.HasField("result")] == []


def test_an_asynchronous_call_that_is_cancelled_at_once_is_still_answered(shared: PluginClient) -> None:
    for _ in range(50):
        invocation_id = shared.invoke("wait_async")
        shared.cancel(invocation_id)
        assert shared.result(invocation_id).error.reason == "cancelled"


def test_a_cancel_for_no_call_is_ignored(shared: PluginClient) -> None:
    shared.cancel(12345)
    done = shared.invoke("echo", '{"text": "x"}')
    shared.result(done)
    shared.cancel(done)
    assert not shared.call("echo", '{"text": "x"}').HasField("error")


@pytest.mark.parametrize("tool", ["wait_in_turn", "wait_async_in_turn"])
def test_calls_of_a_sequential_tool_run_one_at_a_time_and_can_be_cancelled_while_they_wait(
    kitchen: PluginClient, tool: str
) -> None:
    first, second, third = (kitchen.invoke(tool) for _ in range(3))
    kitchen.wait("update", first)
    kitchen.cancel(second, grace_ms=10_000)
    assert kitchen.result(second).error.reason == "cancelled"
    assert not kitchen.call("echo", '{"text": "others pass"}').HasField("error")
    assert not kitchen.kept("update", third)
    kitchen.cancel(first, grace_ms=10_000)
    kitchen.result(first)
    kitchen.wait("update", third)
    kitchen.cancel(third, grace_ms=10_000)
    kitchen.result(third)
    assert not kitchen.kept("update", second)


@pytest.mark.parametrize(
    ("how", "reason", "said"),
    [
        ("value", "exception", "the tool raised ValueError: wrong value"),
        ("exit", "exception", "the tool tried to end its process with SystemExit: 3"),
        ("interrupt", "exception", "the tool tried to end its process with KeyboardInterrupt"),
        ("generator", "exception", "GeneratorExit"),
        ("group", "exception", "BaseExceptionGroup"),
        ("recursion", "exception", "RecursionError"),
        ("mute", "exception", "its text can't be read"),
        ("surrogate", "exception", "ValueError: ?"),
        ("long", "exception", "ValueError: xxx"),
        ("cancelled", "exception", "the tool raised Cancelled: by itself"),
        ("nothing", "exception", "KeyError"),
        ("transient", "transient", "the disk is busy"),
        ("meant", "dish_unknown", "no such dish"),
    ],
)
def test_whatever_a_tool_raises_is_an_error_result(shared: PluginClient, how: str, reason: str, said: str) -> None:
    invocation_id = shared.invoke("fail", json.dumps({"how": how}))
    error = shared.result(invocation_id).error
    assert error.reason == reason
    assert said in error.message
    assert len(error.message) <= 4096
    assert error.retryable == (how == "transient")
    logged = [frame.log for frame in shared.kept("log", invocation_id)]
    assert len(logged) == (0 if how in {"transient", "meant"} else 1)
    assert all("in fail" in json.loads(line.fields_json)["traceback"] for line in logged)
    assert not shared.call("echo", '{"text": "alive"}').HasField("error")


def test_the_details_of_a_meant_failure_arrive(shared: PluginClient) -> None:
    error = shared.call("fail", '{"how": "meant"}').error
    assert json.loads(error.details_json) == {"dish": "soup"}


@pytest.mark.parametrize("in_a_task", ["true", "false"])
def test_an_exit_on_the_event_loop_is_an_error_result(shared: PluginClient, in_a_task: str) -> None:
    assert "SystemExit" in shared.call("exit_async", f'{{"in_a_task": {in_a_task}}}').error.message
    assert json.loads(shared.call("echo_async", '{"text": "alive"}').details_json) == "alive"


def test_wrong_arguments_are_named_each_with_pointer_and_rule(shared: PluginClient) -> None:
    error = shared.call("echo", '{"text": 5, "loud": true}').error
    assert error.reason == "invalid_arguments"
    entries = json.loads(error.details_json)["arguments"]
    assert [(entry["pointer"], entry["rule"]) for entry in entries] == [
        ("/text", "type"),
        ("/loud", "additionalProperties"),
    ]
    assert shared.call("echo", "[not json").error.reason == "invalid_arguments"


def test_an_unknown_tool_is_an_error_result(shared: PluginClient) -> None:
    assert shared.call("nosuch").error.reason == "unknown_tool"


def test_a_result_that_fits_no_frame_is_an_error_result(tmp_path: Path) -> None:
    with plugin(tmp_path) as client:
        client.hello(max_frame_bytes=50_000)
        assert not client.call("large", '{"size": 20000}').HasField("error")
        error = client.call("large", '{"size": 30000}').error
        assert error.reason == "output_too_large"
        assert json.loads(error.details_json)["limit_bytes"] == 50_000
        assert not client.call("echo", '{"text": "alive"}').HasField("error")


def test_a_result_larger_than_the_pipe_arrives_whole_beside_others(shared: PluginClient) -> None:
    calls = [shared.invoke("large", '{"size": 1500000}') for _ in range(4)]
    for invocation_id in calls:
        assert len(json.loads(shared.result(invocation_id).details_json)) == 1_500_000


def test_a_result_that_json_cannot_hold_is_an_error_result(shared: PluginClient) -> None:
    assert shared.call("unwritable").error.reason == "invalid_output"


def test_what_is_written_to_stdout_goes_to_the_log_and_stdin_is_empty(kitchen: PluginClient) -> None:
    result = kitchen.call("loud")
    assert json.loads(result.details_json) == ""
    for line in ("printed", "written to fd 1", "from a shell", "from a program"):
        assert line in kitchen.stderr()


def test_children_of_children_keep_what_their_parent_opened(kitchen: PluginClient) -> None:
    assert json.loads(kitchen.call("grandchild").details_json) == "[0, 0, 0, 0]"


def test_children_do_not_inherit_the_wire(kitchen: PluginClient) -> None:
    fds = Path(f"/proc/{kitchen.process.pid}/fd")
    own = {str(fd.readlink()) for fd in fds.iterdir()}
    wire = {link for link in own if link.startswith("pipe:")}
    assert len(wire) == 2
    for found in json.loads(kitchen.call("inherited").details_json):
        assert found
        assert not wire & set(found)


def test_what_is_said_after_the_end_of_a_call_is_no_longer_said_of_it(kitchen: PluginClient) -> None:
    over = kitchen.invoke("keep")
    kitchen.result(over)
    assert kitchen.kept("log", over)[0].log.message == "kept"
    kitchen.call("speak_late")
    assert kitchen.kept("update", over) == []
    assert len(kitchen.kept("log", over)) == 1
    assert [frame.log.message for frame in kitchen.kept("log", 0)] == ["late line"]


def test_the_end_of_stdin_ends_the_process_with_status_0(kitchen: PluginClient) -> None:
    kitchen.call("echo", '{"text": "x"}')
    kitchen.end_input()
    assert kitchen.exit_status() == 0


def test_the_end_of_stdin_cancels_what_runs(kitchen: PluginClient) -> None:
    running = [kitchen.invoke(tool) for tool in ("wait_politely", "spin", "wait_async")]
    for invocation_id in running:
        kitchen.wait("update", invocation_id)
    kitchen.end_input()
    ended = {frame.result.invocation_id for frame in kitchen.rest() if frame.HasField("result")}
    assert ended == set(running)
    assert kitchen.exit_status() == 0


def test_a_shutdown_lets_calls_finish_and_ends_with_status_0(kitchen: PluginClient) -> None:
    running = kitchen.invoke("wait_politely")
    kitchen.wait("update", running)
    kitchen.shutdown(grace_s=60)
    kitchen.cancel(running, grace_ms=10_000)
    assert json.loads(kitchen.result(running).details_json) == "saw it"
    assert kitchen.exit_status() == 0


def test_a_shutdown_without_calls_is_immediate(kitchen: PluginClient) -> None:
    kitchen.shutdown(grace_s=3600)
    assert kitchen.exit_status() == 0
