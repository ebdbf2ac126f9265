"""The shim of kind `cli`: real programs behind templates, over real pipes."""

from __future__ import annotations

import json
import os
import select
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .client import WAIT_S, PluginClient, started

SCHEMA = '{"type": "object", "properties": {"a": {}, "b": {"default": "by default"}}, "required": []}'


@contextmanager
def shim(folder: Path, script: str, argv: str = '["--", "{a}"]', *, tool: str = "") -> Iterator[PluginClient]:
    """A `cli` plugin whose binary is a shell script."""
    binary = folder / "program"
    binary.write_text(f"#!/bin/sh\n{script}\n")
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    (folder / "plugin.toml").write_text(
        '[plugin]\nname = "trial"\nversion = "1"\nkind = "cli"\nbinary = "program"\n'
        f'[[tool]]\nname = "it"\ndescription = "Do it."\nside_effects = "none"\nargv = {argv}\n'
        f"input_schema = '{SCHEMA}'\n{tool}\n"
    )
    with started(["-m", "fumehood_sdk.adapters.cli", str(folder / "plugin.toml"), str(binary)], folder) as client:
        ready = client.hello(plugin="trial", max_frame_bytes=1 << 20)
        assert ready.tools == []
        yield client


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def ends(pid: int) -> bool:
    """Whether a process ends within the bound: a killed one still takes its time."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], WAIT_S)[0])
    finally:
        os.close(fd)


def test_arguments_reach_the_program_as_they_are_and_its_output_comes_back(tmp_path: Path) -> None:
    script = 'echo "$0 $#"; for word in "$@"; do printf "[%s]" "$word"; done; cat'
    with shim(tmp_path, script, '["{a}", "--x={b}"]') as client:
        result = client.call("it", '{"a": "$(id); \\u00e9 \\n"}')
        stdout = f"{tmp_path}/program 2\n[$(id); é \n][--x=by default]"
        assert json.loads(result.details_json) == {"exit_code": 0, "truncated": False}
        assert result.content[0].text == stdout


def test_numbers_reach_the_program_as_they_were_sent(tmp_path: Path) -> None:
    with shim(tmp_path, 'echo "$2"') as client:
        for number in ("12345678901234567890", "0.1000000000000000055", "-5", "1e400"):
            assert client.call("it", f'{{"a": {number}}}').content[0].text == f"{number}\n"


def test_a_value_that_would_be_an_option_is_refused_and_nothing_is_run(tmp_path: Path) -> None:
    with shim(tmp_path, f"touch {tmp_path}/ran", '["{a}"]') as client:
        error = client.call("it", '{"a": "--exec"}').error
        assert error.reason == "invalid_arguments"
        assert json.loads(error.details_json)["arguments"][0] == {
            "pointer": "/a",
            "rule": "option",
            "message": 'must not begin with "-", where the program would take it for an option',
        }
        assert not (tmp_path / "ran").exists()
        assert not client.call("it", '{"a": "exec"}').HasField("error")
        assert (tmp_path / "ran").exists()


def test_an_exit_status_that_means_failure_is_an_error_result(tmp_path: Path) -> None:
    with shim(tmp_path, 'echo out; echo "went wrong" >&2; exit "$2"', tool="success_exit_codes = [0, 1]") as client:
        assert json.loads(client.call("it", '{"a": 1}').details_json)["exit_code"] == 1
        error = client.call("it", '{"a": 2}').error
        assert error.reason == "exit_status"
        assert "status 2: went wrong" in error.message
        assert json.loads(error.details_json) == {"exit_code": 2, "stderr": "went wrong\n"}


def test_a_program_that_a_signal_ended_is_an_error_result(tmp_path: Path) -> None:
    with shim(tmp_path, 'kill -"$2" $$') as client:
        assert json.loads(client.call("it", '{"a": 9}').error.details_json)["exit_code"] == -9


def test_a_program_that_cannot_be_started_is_an_error_result(tmp_path: Path) -> None:
    with shim(tmp_path, "echo ok") as client:
        (tmp_path / "program").rename(tmp_path / "moved")
        error = client.call("it", '{"a": 1}').error
        assert (error.reason, "No such file" in error.message) == ("start_failed", True)
        (tmp_path / "moved").rename(tmp_path / "program")
        assert client.call("it", '{"a": 1}').content[0].text == "ok\n"


def test_output_beyond_the_limit_is_cut_and_said_to_be(tmp_path: Path) -> None:
    with shim(tmp_path, "head -c 5000000 /dev/zero | tr '\\0' \"$2\"") as client:
        for character in ("x", "\\001", "\\377", '"'):
            result = client.call("it", json.dumps({"a": character}))
            details = json.loads(result.details_json)
            assert (details["exit_code"], details["truncated"]) == (0, True)
            assert 0 < len(result.content[0].text) < 1 << 20
            assert result.ByteSize() < 1 << 20


def test_output_beyond_the_tools_own_limit_is_cut(tmp_path: Path) -> None:
    with shim(tmp_path, "seq 100000", tool="[tool.limits]\noutput_bytes = 20000") as client:
        result = client.call("it", '{"a": 1}')
        assert json.loads(result.details_json)["truncated"] is True
        assert len(result.details_json) + len(result.content[0].text) <= 20000


def test_output_is_told_in_the_details_where_the_schema_names_it(tmp_path: Path) -> None:
    schema = """output_schema = '{"type": "object", "properties": {"stdout": {"type": "string"}}}'"""
    with shim(tmp_path, 'echo "$2"', tool=schema) as client:
        result = client.call("it", '{"a": "once"}')
        assert json.loads(result.details_json) == {"exit_code": 0, "truncated": False, "stdout": "once\n"}
        assert list(result.content) == []


def test_output_that_is_json_becomes_the_details(tmp_path: Path) -> None:
    with shim(tmp_path, 'echo "$2"', tool='output = "json"') as client:
        result = client.call("it", json.dumps({"a": '{"n": [1, 2.5]} '}))
        assert (json.loads(result.details_json), list(result.content)) == ({"n": [1, 2.5]}, [])
        assert client.call("it", '{"a": "{"}').error.reason == "invalid_output"
    with shim(tmp_path, "seq 100000", tool='output = "json"\n[tool.limits]\noutput_bytes = 20000') as client:
        assert client.call("it", '{"a": 1}').error.reason == "output_too_large"


def test_stdin_is_a_template_that_reaches_the_program_whole(tmp_path: Path) -> None:
    with shim(tmp_path, "cat", "[]", tool='stdin = "{a}"') as client:
        for text in ("it's\n$(id)", "x" * 200_000, "ü"):
            assert client.call("it", json.dumps({"a": text})).content[0].text == text
        assert client.call("it", "{}").content[0].text == ""
        assert client.call("it", '{"a": {"n": [1, 1.50, "x"]}}').content[0].text == '{"n":[1,1.5,"x"]}'
    with shim(tmp_path, "exit 0", "[]", tool='stdin = "{a}"') as client:
        assert not client.call("it", json.dumps({"a": "x" * 500_000})).HasField("error"), "it need not be read"


def test_variables_are_templates_and_one_without_a_value_is_left_out(tmp_path: Path) -> None:
    tool = '[tool.environment]\nMODE = "by {b}"\nWHO = "{a}"'
    with shim(tmp_path, 'echo "$MODE ${WHO-nobody} ${PATH:+path}"', "[]", tool=tool) as client:
        assert client.call("it", '{"a": "$(id)"}').content[0].text == "by by default $(id) path\n"
        assert client.call("it", "{}").content[0].text == "by by default nobody path\n"


def test_the_working_folder_is_the_callers_or_lies_in_the_plugins(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with shim(tmp_path, "pwd", "[]", tool='working_folder = "{a}"') as client:
        assert client.call("it", '{"a": "/usr"}').content[0].text == "/usr\n"
        assert client.call("it", '{"a": "data"}').content[0].text == f"{tmp_path}/data\n"
        absent = client.call("it", '{"a": "/no/such/folder"}').error
        assert (absent.reason, json.loads(absent.details_json)["arguments"][0]["pointer"]) == (
            "invalid_arguments",
            "/a",
        )
    with shim(tmp_path, "pwd", "[]", tool='working_folder = "data"') as client:
        assert client.call("it", "{}").content[0].text == f"{tmp_path}/data\n"


def test_a_tool_may_run_a_program_of_its_own(tmp_path: Path) -> None:
    with shim(tmp_path, "echo plugin", "[]", tool='binary = "echo"\n') as client:
        assert client.call("it", "{}").content[0].text == "\n"


def test_stderr_of_a_success_goes_to_the_log(tmp_path: Path) -> None:
    with shim(tmp_path, "echo careful >&2") as client:
        invocation_id = client.invoke("it", '{"a": 1}')
        client.result(invocation_id)
        assert [frame.log.message for frame in client.kept("log", invocation_id)] == ["careful"]


@pytest.mark.parametrize("ignores", ["", "trap '' TERM;"])
def test_a_cancelled_program_is_ended_with_its_children(tmp_path: Path, ignores: str) -> None:
    os.mkfifo(tmp_path / "pids")
    script = f"{ignores} sleep 1000 & echo $$ $! > {tmp_path}/pids; wait; wait; while :; do sleep 1000; done"
    with shim(tmp_path, script) as client:
        invocation_id = client.invoke("it", '{"a": 1}')
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        assert all(map(runs, pids))
        client.cancel(invocation_id, grace_ms=5000)
        assert client.result(invocation_id).error.reason == "cancelled"
        assert all(map(ends, pids))


def test_a_child_that_a_program_leaves_behind_is_ended(tmp_path: Path) -> None:
    with shim(tmp_path, "sleep 1000 & echo $!") as client:
        left = int(client.call("it", '{"a": 1}').content[0].text)
        assert ends(left)


def test_calls_run_beside_each_other(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    with shim(tmp_path, f'test "$2" = wait && cat {tmp_path}/gate; echo done') as client:
        waiting = client.invoke("it", '{"a": "wait"}')
        assert client.call("it", '{"a": "go"}').content[0].text == "done\n"
        assert not client.kept("result", waiting)
        (tmp_path / "gate").write_text("opened ")
        assert client.result(waiting).content[0].text == "opened done\n"


def test_a_manifest_of_another_kind_ends_with_status_1(tmp_path: Path) -> None:
    (tmp_path / "plugin.toml").write_text('[plugin]\nname = "x"\nversion = "1"\nkind = "python"\n')
    with started(["-m", "fumehood_sdk.adapters.cli", str(tmp_path)], tmp_path) as client:
        with pytest.raises(EOFError):
            client.hello()
        assert client.exit_status() == 1
        assert "not cli" in client.stderr()
