"""How `fumehood mcp` and `fumehood mcp wrap` end, and what they keep of a client that doesn't read."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.mcp_import import servers
from tests.sidecar import Sidecar

from .stdio_process import ENDING, begin, ended, receive, send, stdio_process
from .support import BOUND_S, START

PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
PONG = {"jsonrpc": "2.0", "id": 7, "result": {}}
MAX_KEPT_BYTES = 32 * 1024 * 1024
UNREAD_S = 5.0
"""After which what isn't taken counts as refused. A machine with much to do makes the test say less, and never fail."""


@pytest.mark.parametrize("number", ENDING, ids=lambda each: each.name)
def test_one_signal_ends_it_while_stdin_is_open(sidecar: Sidecar, number: signal.Signals) -> None:
    with stdio_process("--address", sidecar.target) as process:
        begin(process)
        process.send_signal(number)
        assert ended(process) == (128 + number, "")


@pytest.mark.parametrize("number", ENDING, ids=lambda each: each.name)
def test_one_signal_ends_wrap_and_all_that_it_has_started(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "server.py"
    script.write_text(servers.PYTHON + "\n\nrun()\n")
    with tempfile.TemporaryDirectory(prefix="fh-") as state:  # a unix socket's path has 107 bytes
        environment = {**os.environ, "XDG_STATE_HOME": state}
        with stdio_process("wrap", "--", "python3", str(script), env=environment) as process:
            begin(process)
            children = psutil.Process(process.pid).children(recursive=True)
            assert children
            process.send_signal(number)
            status, said = ended(process)
            assert (status, "Traceback" in said) == (128 + number, False), said
            assert psutil.wait_procs(children, timeout=BOUND_S)[1] == []


def test_a_signal_that_is_ignored_does_not_end_it(sidecar: Sidecar) -> None:
    command = ["nohup", sys.executable, "-P", "-m", "fumehood_server", "mcp", "--address", sidecar.target]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0) as process:
        begin(process)
        process.send_signal(signal.SIGHUP)
        send(process, PING)
        assert receive(process) == PONG
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_S) == 128 + signal.SIGTERM


def test_client_that_closes_its_end_of_stdout_ends_it_quietly(sidecar: Sidecar) -> None:
    with stdio_process("--address", sidecar.target) as process:
        begin(process)
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        send(process, PING)
        assert ended(process) == (0, "")


def test_it_serves_files_and_ends_where_stdin_is_none(sidecar: Sidecar, tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "fumehood_server", "mcp", "--address", sidecar.target]
    given, answers = tmp_path / "given", tmp_path / "answers"
    given.write_text(json.dumps(START) + "\n")
    with given.open() as stdin, answers.open("w") as stdout:
        assert subprocess.run(command, stdin=stdin, stdout=stdout, timeout=BOUND_S, check=False).returncode == 0
    assert json.loads(answers.read_text())["id"] == 1
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
    done = subprocess.run(closed, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_reads_no_more_of_a_client_that_does_not_read_and_goes_on_when_it_does(sidecar: Sidecar) -> None:
    with stdio_process("--address", sidecar.target) as process:
        begin(process)
        assert process.stdin is not None
        assert process.stdout is not None
        unknown = {"name": "x" * 50_000, "arguments": {}}  # the answer names it
        line = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": unknown}).encode() + b"\n"
        os.set_blocking(process.stdin.fileno(), False)
        taken = 0
        while taken < MAX_KEPT_BYTES and select.select([], [process.stdin], [], UNREAD_S)[1]:
            begun = taken % len(line)
            taken += process.stdin.write(line[begun:]) or 0
        assert taken < MAX_KEPT_BYTES
        os.set_blocking(process.stdin.fileno(), True)
        for _ in range(taken // len(line)):
            assert receive(process)["error"]["code"] == -32602
        if begun := taken % len(line):
            process.stdin.write(line[begun:])
            assert receive(process)["error"]["code"] == -32602
        send(process, PING)
        assert receive(process) == PONG


def test_message_above_the_bound_is_refused_and_the_next_one_answered(sidecar: Sidecar) -> None:
    with stdio_process("--address", sidecar.target) as process:
        begin(process)
        send(process, {**PING, "params": {"_meta": {"x": "y" * 8 * 1024 * 1024}}}, PING)
        assert receive(process)["error"]["code"] == -32600
        assert receive(process) == PONG
        send(process, {**PING, "params": {"_meta": {"x": "y" * 7 * 1024 * 1024}}})
        assert receive(process) == PONG
