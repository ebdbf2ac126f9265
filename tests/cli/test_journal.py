"""`fumehood journal` reads, checks and proves what was recorded, whether or not a sidecar runs."""

from __future__ import annotations

import contextlib
import json
import re
import select
import signal
import sqlite3
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from click.testing import CliRunner
from fumehood_evidence.__main__ import _keys
from fumehood_evidence.page import read
from fumehood_evidence.verification import verify
from fumehood_server.cli.commands.journal.list import list_runs
from fumehood_server.journal import JOURNAL_NAME
from fumehood_server.journal.encoding import encode
from fumehood_server.journal.keys import load_or_make_key
from fumehood_server.model.events import About, EventsLost, Fault

from tests import preloaded
from tests.cli.command import COMMAND, Done, fumehood, on_terminal
from tests.cli.conftest import SAMPLE
from tests.journal.bench import ATTEMPT, STARTED_US, about, end, entries, start, written
from tests.sidecar import running_sidecar, write_plugin

BOUND_S = 60


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Of a state folder with 30 calls in 3 runs, all signed for."""
    path = tmp_path / "fumehood.toml"
    path.write_text("")
    state = tmp_path / ".fumehood"
    state.mkdir(mode=0o700)
    written(state / JOURNAL_NAME, [[*entries(30)]], load_or_make_key(state))
    return path


def journal(config: Path, *arguments: str) -> Done:
    return fumehood("journal", *arguments, "--config", config)


def test_list_shows_the_newest_calls_first(config: Path) -> None:
    done = journal(config, "list", "-n", "2")
    assert done.status == 0
    assert [line.split()[-2:] for line in done.stdout.splitlines()[1:]] == [
        ["call-00000029", "run-2"],
        ["call-00000028", "run-2"],
    ]
    calls = journal(config, "list", "--run", "run-1", "--json").json["calls"]
    assert [each["call_id"] for each in calls] == [f"call-{number:08}" for number in range(19, 9, -1)]
    assert {each["state"] for each in calls} == {"ended"}
    assert {each["outcome"] for each in calls} == {"OK"}


def test_list_tells_calls_that_failed_from_those_that_still_run(tmp_path: Path) -> None:
    path = waterfall(tmp_path)
    calls = journal(path, "list", "--json").json["calls"]
    assert [(each["call_id"], each["state"], each["outcome"]) for each in calls] == [
        ("open", "started", None),
        ("slow", "ended", "TOOL_TIMEOUT"),
    ]
    heading, runs, fails = journal(path, "list").stdout.splitlines()
    assert ("OUTCOME" in heading, "OUTCOME" in runs, "TOOL_TIMEOUT" in fails) == (True, False, True)


def test_list_finds_calls_and_events_by_what_is_asked(config: Path) -> None:
    def listed(*asked: str) -> Any:
        done = CliRunner().invoke(list_runs, [*asked, "--config", str(config)], catch_exceptions=False)
        return json.loads(done.stdout) if "--json" in asked else done.stdout

    def calls(*asked: str) -> list[str]:
        return [each["call_id"] for each in listed("--json", *asked)["calls"]]

    assert calls("--call", "call-00000004") == ["call-00000004"]
    assert calls("--after", "87") == ["call-00000029"]
    assert calls("--before", "5", "--tool", "write_file") == ["call-00000001", "call-00000000"]
    assert calls("--outcome", "OK", "-n", "1") == ["call-00000029"]
    assert calls("--outcome", "TOOL_TIMEOUT") == calls("--since", "-1h") == calls("--plugin", "web") == []
    assert len(calls("--since", "2023-11-14T22:13:20Z", "--until", "2023-11-15", "-n", "50")) == 30
    events = listed("--json", "--type", "execute_attempt", "--run", "run-2", "-n", "2")["events"]
    assert [(each["position"], each["event"]["call_id"]) for each in events] == [
        (89, "call-00000029"),
        (86, "call-00000028"),
    ]
    table = listed("--events", "-n", "3").splitlines()
    assert [line.split()[0] for line in table] == ["AT", "90", "89", "88"]
    assert "attempt 1 on files-1" in table[2]
    wrong = journal(config, "list", "--since", "yesterday", "--json")
    assert (wrong.status, "-1h" in wrong.error["todo"]) == (2, True)


def test_tail_prints_the_newest_events_oldest_first(config: Path) -> None:
    lines = journal(config, "tail", "-n", "2", "--type", "execute_end", "--json").lines
    assert [each["position"] for each in lines] == [87, 90]
    assert journal(config, "tail", "-n", "1").stdout.split() == [
        *("22:13:20.000", "90", "execute_end", "write_file", "call-00000029", "OK"),
    ]


def started(command: Sequence[str]) -> subprocess.Popen[str]:
    made: subprocess.Popen[str] = preloaded.Popen(command, stdout=subprocess.PIPE, text=True)
    return made


def first_lines(process: subprocess.Popen[str], count: int) -> list[dict[str, Any]]:
    assert process.stdout is not None
    return [json.loads(process.stdout.readline())["event"] for _ in range(count)]


def test_tail_follows_the_file_where_no_sidecar_serves(config: Path) -> None:
    command = [*COMMAND, "journal", "tail", "-f", "-n", "1", "--tool", "write_file", "--json", "--config", str(config)]
    with started(command) as process:
        assert [each["call_id"] for each in first_lines(process, 1)] == ["call-00000029"]
        written(config.parent / ".fumehood" / JOURNAL_NAME, [[*entries(1, first=30)]])
        assert [each["number"] for each in first_lines(process, 3)] == [1, 2, 3]
        process.send_signal(signal.SIGINT)
        assert process.wait(BOUND_S) == 0


def test_tail_follows_the_sidecar_that_serves(tmp_path: Path) -> None:
    with running_sidecar([write_plugin(tmp_path / "sample", "sample", SAMPLE)]) as recording:
        command = [*COMMAND, "journal", "tail", "-f", "-n", "0", "--tool", "say", "--json"]
        with started([*command, "--address", recording.target]) as process:
            # It follows from some moment on: calls are made until it shows one.
            assert process.stdout is not None
            while not select.select([process.stdout], [], [], 0.1)[0]:
                assert fumehood("call", "say", "text=hello", address=recording.target).status == 0
            (event,) = first_lines(process, 1)
            process.send_signal(signal.SIGINT)
            assert process.wait(BOUND_S) == 0
        assert (event["type"] in {"execute_start", "execute_end"}, event["tool"]) == (True, "say")
        newest = ["journal", "tail", "-n", "1", "--type", "execute_end", "--json"]
        deadline = time.monotonic() + BOUND_S
        while not (ends := fumehood(*newest, address=recording.target).lines):  # of level none: recorded a moment later
            assert time.monotonic() < deadline
        assert [each["event"]["data"]["error"] for each in ends] == [None]


def waterfall(tmp_path: Path) -> Path:
    """A run: one call that waited, was tried and met a limit, and one that goes on."""
    path = tmp_path / "fumehood.toml"
    path.write_text("")
    state = tmp_path / ".fumehood"
    state.mkdir(mode=0o700)
    fault = Fault(code="TOOL_TIMEOUT", category="tool", retryable=True, message="\x1b[31mtook too long\nreally")
    ended = end(error=fault)
    ended.queue_us, ended.wall_us, ended.updates = 250_000, 750_000, 2
    made = [
        (0, start(), about("slow", tool="slow\x1b[2J")),
        (250_000, ATTEMPT, about("slow", tool="slow\x1b[2J")),
        (500_000, start(), about("open", tool="open_one")),
        (1_000_000, ended, about("slow", tool="slow\x1b[2J")),
        (1_000_000, EventsLost(count=3, reason="disk full"), About(run_id="run-1")),
    ]
    written(
        state / JOURNAL_NAME,
        [[encode(event, of, time_us=STARTED_US + at, sidecar="0a0b0c0d") for at, event, of in made]],
    )
    return path


def test_show_draws_waits_attempts_and_outcomes_on_one_axis_as_wide_as_the_terminal(tmp_path: Path) -> None:
    status, drawn = on_terminal("journal", "show", "run-1", "--config", waterfall(tmp_path))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", drawn)
    assert status == 0
    assert "\x1b[2J" not in drawn
    lines = [line.rstrip() for line in plain.splitlines() if line.strip()]
    assert max(map(len, lines)) <= 100
    heading, slow, *rest = lines
    attempt, opened, lost = (
        next(line for line in rest if word in line) for word in ("attempt", "open_one", "events_lost")
    )
    axis = heading.index("0 ")
    width = heading.index("HOW") - 2 - axis
    assert slow[axis : axis + width].count("░") == pytest.approx(width / 4, abs=1)
    assert slow[axis : axis + width].count("█") == pytest.approx(width * 3 / 4, abs=1)
    assert attempt.index("│") - axis == pytest.approx(width / 4, abs=1)
    assert opened.index("▒") - axis == pytest.approx(width / 2, abs=1)
    assert lost.index("│") == axis + width - 1
    assert slow.startswith("0 ms")
    assert "TOOL_TIMEOUT, 2 updates: " in plain
    assert "too long really" in plain


def test_show_as_json_has_every_event(tmp_path: Path) -> None:
    shown = journal(waterfall(tmp_path), "show", "run-1", "--json").json
    assert [each["type"] for each in shown["events"]] == [
        *("execute_start", "execute_attempt", "execute_start", "execute_end", "events_lost"),
    ]
    assert shown["complete"]


def test_runs_calls_and_types_are_completed(config: Path) -> None:
    def completed(words: str) -> list[str]:
        more = {"_FUMEHOOD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        done = fumehood(folder=config.parent, more=more)
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert completed("fumehood journal show run-1") == ["run-1"]
    assert completed("fumehood journal evidence --call call-0000002") == [
        f"call-000000{number}" for number in range(29, 19, -1)
    ]
    assert completed("fumehood journal list --type execute_e") == ["execute_end"]


def test_show_draws_a_run_and_a_call(config: Path) -> None:
    run = journal(config, "show", "run-1")
    assert [run.stdout.count(f"call-0000001{number} OK") for number in range(10)] == [1] * 10
    call = journal(config, "show", "call-00000003", "--json").json["events"]
    assert [each["type"] for each in call] == ["execute_start", "execute_attempt", "execute_end"]
    unknown = journal(config, "show", "nothing", "--json")
    assert (unknown.status, unknown.error["code"]) == (2, "NOT_FOUND")


def test_verify_is_content_with_what_was_signed_and_names_what_was_not(config: Path) -> None:
    assert journal(config, "verify").stdout == (
        "91 events: all as written. 91 of them are signed for; 60 arguments and results are here.\n"
    )
    with contextlib.closing(sqlite3.connect(config.parent / ".fumehood" / JOURNAL_NAME)) as connection, connection:
        connection.execute("UPDATE events SET tool = 'other' WHERE position = 7")
    changed = journal(config, "verify")
    assert (changed.status, changed.stdout) == (1, "not verified: event 7 is filed under what it does not say\n")
    told = journal(config, "verify", "--json")
    assert (told.status, told.json["verified"], told.json["fault"]["position"]) == (1, False, 7)


def test_verify_takes_a_key_that_was_kept_elsewhere(config: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.pub"
    kept.write_bytes((config.parent / ".fumehood" / "journal.pub").read_bytes())
    assert journal(config, "verify", "--key", str(kept)).status == 0
    kept.write_text("no+key+AAAA\n")
    refused = journal(config, "verify", "--key", str(kept), "--json")
    assert (refused.status, refused.error["code"]) == (1, "KEY_UNREADABLE")


@pytest.mark.parametrize(("what", "calls"), [(("--call", "call-00000003"), 1), (("--run", "run-2"), 10)])
def test_evidence_is_proven_by_the_public_key(config: Path, tmp_path: Path, what: tuple[str, str], calls: int) -> None:
    file = tmp_path / "evidence.html"
    assert journal(config, "evidence", *what, "-o", str(file)).status == 0

    found = verify(read(file.read_text()), _keys(str(config.parent / ".fumehood" / "journal.pub")))
    assert len(found.calls) == calls


def test_evidence_of_nothing_is_refused(config: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "evidence.html")
    for arguments, status in ((("--call", "nothing"), 1), ((), 2), (("--call", "a", "--run", "b"), 2)):
        done = journal(config, "evidence", *arguments, "-o", file)
        assert done.status == status
        assert ("`fumehood journal list` lists calls" in done.stderr) == (status == 1)
    assert not (tmp_path / "evidence.html").exists()


def test_export_writes_each_event_on_a_line(config: Path) -> None:
    lines = journal(config, "export", "--type", "execute_end", "--after", "80").lines
    assert [each["position"] for each in lines] == [81, 84, 87, 90]
    assert {each["event"]["type"] for each in lines} == {"execute_end"}
    assert "execute_start" in journal(config, "export", "--type", "execute_stop").stderr


def test_export_writes_parquet_with_the_same_events(config: Path, tmp_path: Path) -> None:
    file = tmp_path / "events.parquet"
    done = journal(config, "export", "--format", "parquet", "--type", "execute_end", "-o", str(file))
    assert (done.status, done.stderr) == (0, f"{file}: 30 events\n")
    rows = pyarrow.parquet.read_table(file).to_pylist()
    lines = journal(config, "export", "--type", "execute_end").lines
    assert [{"position": row["position"], "event": json.loads(row["body"])} for row in rows] == lines
    assert {(row["outcome"], row["run_id"]) for row in rows} == {("OK", f"run-{number}") for number in range(3)}
    assert rows[0]["time"].timestamp() == pytest.approx(lines[0]["event"]["time_us"] / 1e6, abs=1e-6)


def test_parquet_without_its_extra_names_the_command_that_brings_it(config: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "pyarrow.py").write_text("raise ImportError\n")
    arguments = ("journal", "export", "--format", "parquet", "-o", tmp_path / "x", "--config", config)
    done = fumehood(*arguments, more={"PYTHONPATH": str(tmp_path / "none")})
    assert done.status == 1
    assert '"./server[parquet]" in a clone, or "fumehood-server[parquet]" from an index' in done.stderr
    assert journal(config, "export", "-o", str(tmp_path / "x")).status == 0
    assert len((tmp_path / "x").read_text().splitlines()) == 91


def test_keygen_keeps_what_old_keys_have_signed_proven(config: Path) -> None:
    state = config.parent / ".fumehood"
    before = (state / "journal.pub").read_text()
    assert journal(config, "keygen").stdout == before
    rotated = journal(config, "keygen", "--rotate")
    assert rotated.stdout != before
    assert f"Hand {state / 'journal.pub'} to whoever verifies" in rotated.stderr
    assert (state / "journal.pub").read_text().startswith(before)
    assert oct((state / "journal.key").stat().st_mode & 0o777) == "0o600"
    assert journal(config, "verify").status == 0


@pytest.mark.parametrize("command", ["list", "verify"])
def test_of_a_file_that_is_no_toml_the_second_line_says_what_to_do(command: str, config: Path) -> None:
    config.write_text("[server\n")
    done = journal(config, command)
    assert done.status == 2
    assert done.stderr.splitlines()[1] == "Mend it, and run this again."


def test_without_a_journal_the_commands_say_who_makes_it(tmp_path: Path) -> None:
    (tmp_path / "fumehood.toml").write_text("")
    done = journal(tmp_path / "fumehood.toml", "list", "--json")
    assert (done.status, done.error["code"]) == (2, "NOT_FOUND")
    assert "fumehood serve" in json.dumps(done.error)
