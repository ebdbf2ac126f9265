"""`fumehood run` on a terminal: text as it comes, spinners, approvals in place, steering, Ctrl-C, hostile text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.hostile import HOSTILE, raw_controls
from tests.orchestration.runs.bench import model_sidecar
from tests.orchestration.scripted import ScriptedModel
from tests.sidecar import Sidecar

from .terminal import on_terminal


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="module")
def sidecar(model_server: ScriptedModel, folder: Path) -> Iterator[Sidecar]:
    with model_sidecar(model_server, folder, permission="require_approval") as running:
        yield running


def test_text_is_shown_as_it_comes_and_tools_with_level_time_and_outcome(
    scripted_model: ScriptedModel, sidecar: Sidecar
) -> None:
    scripted_model.calls(("wait", {"seconds": 2.0}), ("fail", {"why": "no luck"}), text="Let me wait.")
    scripted_model.says("That was long.", piece=4, latency=20)
    with on_terminal("run", "Go.", address=sidecar.target) as terminal:
        terminal.until("Let me wait.")
        status = terminal.end()
    assert status == 0
    assert re.search(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] wait\(seconds=2\.0\)  none", terminal.text), terminal.text
    assert re.search(r"✓ wait\(seconds=2\.0\)  none  [\d.]+ s  ok: waited", terminal.text), terminal.text
    assert '✗ fail(why="no luck")  none' in terminal.text
    assert terminal.text.count("That was long.") == 1
    assert "complete in" in terminal.text
    assert "2 answers of 20 + 10 tokens; 2 tool calls; run run-" in terminal.text


def test_an_approval_is_asked_for_in_place_and_given_for_what_was_shown(
    scripted_model: ScriptedModel, sidecar: Sidecar, folder: Path
) -> None:
    path = folder / "notes/approved"
    scripted_model.calls(("note", {"path": str(path), "text": "as shown"}))
    scripted_model.says("Noted.")
    with on_terminal("run", "Go.", "--id", "asks", address=sidecar.target) as terminal:
        terminal.until("let note run? y, or n and why")
        assert '"text": "as shown"' in terminal.text
        assert "note of notes, level write, waits for an approval" in terminal.text
        terminal.type("perhaps\r")
        terminal.until("y lets it run")
        assert not path.exists()
        terminal.type("y as agreed\r")
        status = terminal.end()
    assert status == 0, terminal.text
    assert path.read_text() == "as shown\n"
    assert "Noted." in terminal.text


def test_a_denial_takes_a_reason_which_the_model_is_told(
    scripted_model: ScriptedModel, sidecar: Sidecar, folder: Path
) -> None:
    path = folder / "notes/denied"
    scripted_model.calls(("note", {"path": str(path), "text": "x"}))
    scripted_model.says("Then not.")
    with on_terminal("run", "Go.", address=sidecar.target) as terminal:
        terminal.until("let note run?")
        terminal.type("n\r")
        terminal.until("say why")
        terminal.type("n the wrong folder\r")
        status = terminal.end()
    assert status == 0, terminal.text
    assert not path.exists()
    told = [each["content"] for each in scripted_model.requests()[1]["messages"] if each["role"] == "tool"]
    assert "the wrong folder" in told[0]


def test_arguments_that_are_too_long_to_be_seen_are_not_decided_here(
    scripted_model: ScriptedModel, sidecar: Sidecar, folder: Path
) -> None:
    scripted_model.calls(("note", {"path": str(folder / "notes/long"), "text": "x" * 20_000}))
    with on_terminal("run", "Go.", address=sidecar.target) as terminal:
        terminal.until("fumehood approvals watch")
        terminal.type("y\r\x03")
        status = terminal.end()
    assert status == 130, terminal.text
    assert not (folder / "notes/long").exists()


def test_a_line_that_is_typed_reaches_the_model_at_the_end_and_after_a_mark_before_its_next_answer(
    scripted_model: ScriptedModel, sidecar: Sidecar, folder: Path
) -> None:
    typed = folder / "signals/typed"
    scripted_model.calls(("hold", {"path": str(typed)}))
    scripted_model.says("First.")
    scripted_model.says("Second.")
    with on_terminal("run", "Go.", address=sidecar.target) as terminal:
        terminal.until("hold(")  # what it says itself may be cut off by the width
        terminal.type("And thex\x7fn?\r")
        terminal.until("you (at its end): And then?")
        terminal.type("!Be short.\r")
        terminal.until("you (before its next answer): Be short.")
        typed.touch()
        status = terminal.end()
    assert status == 0
    texts = [[each["content"] for each in body["messages"]] for body in scripted_model.requests()]
    assert "Be short." in texts[1]
    assert "And then?" not in texts[1]
    assert texts[2][-1] == "And then?"
    assert "Second." in terminal.text


def test_ctrl_c_stops_the_run_and_says_how_to_go_on(scripted_model: ScriptedModel, sidecar: Sidecar) -> None:
    scripted_model.calls(("wait", {"seconds": 25}))
    scripted_model.says("Done.")
    with on_terminal("run", "Go.", address=sidecar.target) as terminal:
        terminal.until("waiting")
        terminal.type("\x03")
        status = terminal.end()
    assert status == 130
    assert "Go on with it: fumehood run --id run-" in terminal.text
    request_id = terminal.text.split("fumehood run --id ")[1].split()[0]
    with on_terminal("run", "Go.", "--id", request_id, address=sidecar.target) as again:
        status = again.end()
    assert status == 0
    assert "goes on from its record" in again.text
    assert "served from the record" in again.text
    assert "Done." in again.text
    assert len(scripted_model.requests()) == 2


def test_answers_that_come_at_once_are_counted_and_the_one_that_won_is_shown(
    scripted_model: ScriptedModel, sidecar: Sidecar
) -> None:
    scripted_model.says("It is not spam.", piece=3, latency=500, times=3)
    with on_terminal("run", "Is it spam?", "--replicas", "3", address=sidecar.target) as terminal:
        terminal.until("replica-3: asking scripted")
        terminal.until(" characters")
        status = terminal.end()
    assert status == 0
    assert terminal.text.count("It is not spam.") == 1
    assert "confidence 1.00 by voting" in terminal.text


def test_models_and_tools_give_no_orders_to_the_terminal(
    scripted_model: ScriptedModel, sidecar: Sidecar, folder: Path
) -> None:
    note = {"path": str(folder / "notes/hostile"), "text": HOSTILE}
    scripted_model.calls(("fail", {"why": HOSTILE}), ("note", note), (HOSTILE[:40], {}), text=HOSTILE)
    scripted_model.says(HOSTILE, piece=3)
    with on_terminal("run", "Go.", address=sidecar.target) as terminal:
        terminal.until("let note run?")
        terminal.type("y\r")
        status = terminal.end()
    assert status == 0
    assert raw_controls(terminal.raw.replace("\r\n", "\n")) == []
    assert "\x1b]0;" not in terminal.raw
    assert "<␛>" in terminal.text
