"""`fumehood call` against the real sidecar: what is printed where, and what the exit status says."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests import preloaded
from tests.cli.command import COMMAND, TIMEOUT_S, environment, fumehood
from tests.cli.fake import FakeSidecar, result
from tests.sidecar import Sidecar

RESULT_KEYS = [
    "call_id",
    "tool",
    "plugin",
    "is_error",
    "content",
    "details",
    "terminate",
    "error",
    "attempts",
    "recorded_call_id",
    "cached",
    "coercions",
    "usage",
    "sandbox",
]


def test_values_are_typed_by_the_schema(sidecar: Sidecar) -> None:
    done = fumehood("call", "add_up", "numbers=1", "numbers=2", "times=3", address=sidecar.target)
    assert (done.status, json.loads(done.stdout)) == (0, {"total": 9})


def test_a_text_that_looks_like_a_number_stays_a_text_where_the_tool_takes_one(sidecar: Sidecar) -> None:
    assert fumehood("call", "say", "text=007", address=sidecar.target).stdout == "007\n"


def test_arguments_come_from_a_file_from_stdin_and_as_json_and_pairs_win(sidecar: Sidecar, tmp_path: Path) -> None:
    (tmp_path / "args.json").write_text('{"text": "file"}')
    at = sidecar.target
    assert fumehood("call", "say", "--args", "@args.json", address=at, folder=tmp_path).stdout == "file\n"
    assert fumehood("call", "say", "--args", "-", address=at, stdin='{"text": "stdin"}').stdout == "stdin\n"
    assert fumehood("call", "say", "--args", '{"text": "a"}', "text=b", "note:=null", address=at).stdout == "b\n"


def test_json_prints_the_whole_result_in_the_documented_shape(sidecar: Sidecar) -> None:
    done = fumehood("call", "add_up", "numbers:=[4]", "--call-id", "mine", "--json", address=sidecar.target)
    assert list(done.json) == RESULT_KEYS
    assert done.json["call_id"] == "mine"
    assert done.json["details"] == {"total": 4}
    usage = done.json["usage"]
    assert list(usage) == [
        *("wall_s", "queue_s", "input_bytes", "output_bytes", "cpu_s", "peak_memory_bytes", "source"),
        *("egress_sent_bytes", "egress_received_bytes"),
    ]
    assert usage["cpu_s"] > 0
    assert usage["peak_memory_bytes"] > 1 << 20
    assert usage["source"]
    assert done.json["sandbox"]["side_effects"] == "none"
    assert "seccomp" in {layer["name"] for layer in done.json["sandbox"]["layers"]}


def test_a_tool_that_fails_is_status_1_and_says_why_on_stderr(sidecar: Sidecar) -> None:
    done = fumehood("call", "fail", "reason=tired", address=sidecar.target)
    assert (done.status, done.stdout) == (1, "")
    assert "it went wrong; try another  [TOOL_EXECUTION_FAILED]" in done.stderr
    done = fumehood("call", "fail", "reason=tired", "--json", address=sidecar.target)
    assert (done.status, done.json["error"]["details"]["reason"]) == (1, "tired")
    assert list(done.json["error"]) == ["code", "category", "retryable", "message", "details", "caused_by"]


def test_bad_arguments_are_status_2_and_name_each_one_and_the_usage(sidecar: Sidecar) -> None:
    done = fumehood("call", "add_up", "times=99", address=sidecar.target)
    assert done.status == 2
    assert "/numbers: " in done.stderr
    assert "/times: " in done.stderr
    assert "Usage: fumehood call add_up numbers=<array of integer> [times=<integer, 1 to 10>]" in done.stderr


def test_a_value_of_the_wrong_type_is_refused_before_the_call(sidecar: Sidecar) -> None:
    done = fumehood("call", "add_up", "numbers=one", address=sidecar.target)
    assert (done.status, done.stdout) == (2, "")
    assert 'numbers=one: "one" is not integer' in done.stderr
    assert "Usage: fumehood call add_up" in done.stderr


def test_an_unknown_tool_is_status_2_with_the_near_name_with_and_without_arguments(sidecar: Sidecar) -> None:
    for arguments in ((), ("numbers=1",)):
        done = fumehood("call", "ad_up", *arguments, address=sidecar.target)
        assert (done.status, "Did you mean add_up?" in done.stderr) == (2, True)


def test_an_argument_that_the_tool_does_not_take_is_status_2_with_the_near_name(sidecar: Sidecar) -> None:
    done = fumehood("call", "add_up", "number=1", address=sidecar.target)
    assert (done.status, "Did you mean numbers?" in done.stderr) == (2, True)


def test_a_denied_tool_is_status_1_and_says_how_the_operator_allows_it(sidecar: Sidecar) -> None:
    done = fumehood("call", "keep", "text=a", address=sidecar.target)
    assert done.status == 1
    assert "[TOOL_" in done.stderr


def test_a_call_id_that_the_sidecar_refuses_is_status_2_with_an_error_object(sidecar: Sidecar) -> None:
    done = fumehood("call", "say", "text=a", "--call-id", "not valid!", "--json", address=sidecar.target)
    assert (done.status, done.stdout) == (2, "")
    assert list(done.error) == ["code", "message", "todo", "exit_status", "details"]
    assert (done.error["code"], done.error["exit_status"]) == ("REQUEST_INVALID", 2)


def test_a_timeout_ends_the_call_with_its_own_code(sidecar: Sidecar) -> None:
    done = fumehood("call", "steps", "count=1", "hang=true", "--timeout", "0.5", address=sidecar.target)
    assert "Give it more with --timeout" in done.stderr
    assert (done.status, "[TOOL_TIMEOUT]" in done.stderr) == (1, True)


def test_a_stream_prints_updates_as_plain_lines_on_stderr_and_the_result_on_stdout(sidecar: Sidecar) -> None:
    done = fumehood("call", "steps", "count=2", "--stream", address=sidecar.target)
    assert (done.status, done.stdout) == (0, "done\n")
    assert done.stderr == "[1/2] step 1\n[2/2] step 2\n"


def test_a_stream_as_json_is_a_line_for_each_event(sidecar: Sidecar) -> None:
    done = fumehood("call", "steps", "count=2", "--stream", "--json", address=sidecar.target)
    started, first, second, finished = done.lines
    assert started == {"event": "started", "call_id": started["call_id"], "tool": "steps"}
    assert list(first) == ["event", "call_id", "sequence", "message", "progress", "total", "unit", "data"]
    assert (first["sequence"], second["progress"], second["total"]) == (1, 2.0, 2.0)
    assert list(finished["result"]) == RESULT_KEYS


def test_ctrl_c_cancels_the_call_and_says_so(sidecar: Sidecar) -> None:
    arguments = ["call", "steps", "count=1", "hang=true", "--stream", "--json", "--call-id", "to-be-cancelled"]
    with preloaded.Popen(
        [*COMMAND, *arguments],
        env=environment(sidecar.target),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "started"
        assert json.loads(process.stdout.readline())["event"] == "update"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert "cancelled: the call to-be-cancelled of steps was told to stop" in stderr
    # The same id is free again once the call has ended; a call that went on would hold it for 50 s.
    ended = fumehood("call", "say", "text=after", "--call-id", "another", address=sidecar.target)
    assert ended.stdout == "after\n"
    deadline = time.monotonic() + TIMEOUT_S
    while not (ends := [line for line in sidecar.log() if line.get("call_id") == "to-be-cancelled"]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [(line["event"], line["code"]) for line in ends] == [("execute_cancelled", "CANCELLED_SIGNAL")]


def test_a_batch_is_answered_in_the_order_of_its_file(sidecar: Sidecar, tmp_path: Path) -> None:
    calls = [
        {"tool": "say", "arguments": {"text": "first"}, "call_id": "batch-1"},
        {"tool": "add_up", "arguments": {"numbers": "none"}},
        {"tool": "nothing_such"},
        {"tool": "add_up", "arguments": {"numbers": [1, 2]}},
        {"tool": "say", "call_id": "no id"},
    ]
    lines = [json.dumps(each) for each in calls]
    (tmp_path / "calls.jsonl").write_text("\n\n".join(lines[:4]) + "\n")
    done = fumehood("call", "--batch", "calls.jsonl", "--json", address=sidecar.target, folder=tmp_path)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.status, [each["index"] for each in answers]) == (1, [0, 1, 2, 3])
    assert [each["error"] and each["error"]["code"] for each in answers] == [
        *(None, "TOOL_EXECUTION_FAILED", "TOOL_NOT_FOUND", None),
    ]
    assert answers[0]["result"]["call_id"] == "batch-1"
    assert answers[3]["result"]["details"] == {"total": 3}

    plain = fumehood("call", "--batch", "-", address=sidecar.target, stdin=lines[0])
    assert (plain.status, plain.stdout) == (0, "1. say ok\nfirst\n")
    refused = fumehood("call", "--batch", "-", address=sidecar.target, stdin=lines[4])
    assert (refused.status, "calls[0]" in refused.stderr) == (2, True)


def test_a_file_that_is_no_batch_is_refused_before_anything_is_called(sidecar: Sidecar, tmp_path: Path) -> None:
    good = json.dumps({"tool": "say", "arguments": {"text": "a"}})
    wrong = ["{", "[]", '{"arguments": {}}', '{"tool": "say", "argument": {}}', '{"tool": "say", "call_id": 3}']
    for line in wrong:
        (tmp_path / "calls").write_text(f"{good}\n{line}\n")
        done = fumehood("call", "--batch", "calls", address=sidecar.target, folder=tmp_path)
        assert (done.status, done.stdout, "line 2" in done.stderr) == (2, "", True), line
    for arguments in (("say", "--batch", "calls"), ("--batch", "gone"), ("--batch", "calls", "--stream"), ()):
        assert fumehood("call", *arguments, address=sidecar.target, folder=tmp_path).status == 2


@pytest.mark.parametrize(
    ("texts", "details", "shown"),
    [
        (["hello"], '{"result": "hello"}', "hello\n"),
        (["3"], '{"result": 3}', "3\n"),
        (['{"a": 1}', "b"], '{"result": [{"a": 1}, "b"]}', '{"a": 1}\nb\n'),
        (['{"a":1.0}'], '{"a": 1.0}', '{"a":1.0}\n'),
        (["hello"], '{"result": "other"}', 'hello\n{\n  "result": "other"\n}\n'),
        (["hello"], '{"result": "hello", "n": 1}', 'hello\n{\n  "result": "hello",\n  "n": 1\n}\n'),
    ],
)
def test_what_the_texts_say_already_is_not_printed_as_json_again(
    fake: FakeSidecar, texts: list[str], details: str, shown: str
) -> None:
    response = result("")
    response.result.ClearField("content")
    for text in texts:
        response.result.content.add(text=text)
    response.result.details_json = details
    fake.answer = lambda _context: response
    assert fumehood("call", "odd", address=fake.target).stdout == shown
