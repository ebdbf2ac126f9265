"""`fumehood journal` reads, checks and proves what was recorded, whether or not a sidecar runs."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest
from fumehood_evidence.__main__ import _keys
from fumehood_evidence.bundle import verify
from fumehood_evidence.page import read
from fumehood_server.journal import JOURNAL_NAME
from fumehood_server.journal.keys import load_or_make_key

from tests.cli.command import Done, fumehood
from tests.journal.bench import entries, written


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


def test_show_draws_a_run_and_a_call(config: Path) -> None:
    run = journal(config, "show", "run-1")
    assert run.stdout.count("execute_end") == 10
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
        assert journal(config, "evidence", *arguments, "-o", file).status == status
    assert not (tmp_path / "evidence.html").exists()


def test_export_writes_each_event_on_a_line(config: Path) -> None:
    lines = journal(config, "export", "--type", "execute_end", "--after", "80").lines
    assert [each["position"] for each in lines] == [81, 84, 87, 90]
    assert {each["event"]["type"] for each in lines} == {"execute_end"}
    assert "execute_start" in journal(config, "export", "--type", "execute_stop").stderr


def test_keygen_keeps_what_old_keys_have_signed_proven(config: Path) -> None:
    state = config.parent / ".fumehood"
    before = (state / "journal.pub").read_text()
    assert journal(config, "keygen").stdout == before
    assert journal(config, "keygen", "--rotate").stdout != before
    assert (state / "journal.pub").read_text().startswith(before)
    assert oct((state / "journal.key").stat().st_mode & 0o777) == "0o600"
    assert journal(config, "verify").status == 0


def test_without_a_journal_the_commands_say_who_makes_it(tmp_path: Path) -> None:
    (tmp_path / "fumehood.toml").write_text("")
    done = journal(tmp_path / "fumehood.toml", "list", "--json")
    assert (done.status, done.error["code"]) == (2, "NOT_FOUND")
    assert "fumehood serve" in json.dumps(done.error)
