"""Answers of a real model behind llama.cpp, as they were on the wire. `make test-model RECORD=1` records them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.orchestration.scripted import ScriptedModel

from .scenarios import (
    ENGINE,
    NOTE,
    PARTS,
    agent_sidecar,
    assert_noted_once,
    load_cassette,
    run_to_its_end,
    run_until_noted,
)


def play(model: ScriptedModel, exchanges: list[dict[str, Any]]) -> None:
    """Have the server answer so, in this order."""
    for each in exchanges:
        kind = "text/event-stream" if each["status"] == 200 else "application/json"
        model.answers_raw(*each["chunks"], status=each["status"], headers={"content-type": kind})


async def test_a_recorded_model_writes_an_approved_note_once_though_its_sidecar_is_killed(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    cassette = load_cassette("note")
    engine = scripted_model.engine_table(raw=True, more=ENGINE)
    play(scripted_model, cassette["before_kill"])
    scripted_model.answers_raw(silent=True)  # the answer that the kill cuts off
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        state = Path(name)
        with agent_sidecar(engine, tmp_path, state) as sidecar:
            await run_until_noted(sidecar, lambda: None)
        scripted_model.clear()
        play(scripted_model, cassette["after_kill"])
        with agent_sidecar(engine, tmp_path, state) as sidecar:
            events = await run_to_its_end(sidecar, NOTE)
    assert_noted_once(events, tmp_path)
    assert events[-1].finished.content == cassette["content"]
    assert (tmp_path / "notes.txt").read_text() == cassette["note"]
    assert len(scripted_model.requests()) == len(cassette["after_kill"]), "nothing on record is asked again"


async def test_a_recorded_model_is_held_to_a_schema(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    cassette = load_cassette("parts")
    play(scripted_model, cassette["answers"])
    with agent_sidecar(scripted_model.engine_table(raw=True, more=ENGINE), tmp_path) as sidecar:
        events = await run_to_its_end(sidecar, PARTS)
    response = events[-1].finished
    assert (response.state, response.error.code) == ("COMPLETE", "")
    assert json.loads(response.output_json) == cassette["output"]
    assert scripted_model.requests()[-1]["response_format"]["type"] == "json_schema"


async def test_an_answer_that_llama_cpp_can_not_parse_is_asked_for_again(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    play(scripted_model, load_cassette("unparsed")["answers"])
    play(scripted_model, load_cassette("parts")["answers"])
    with agent_sidecar(scripted_model.engine_table(raw=True, more=ENGINE), tmp_path) as sidecar:
        events = await run_to_its_end(sidecar, PARTS)
    assert events[-1].finished.state == "COMPLETE"
    ended = [each.inference_finished for each in events if each.HasField("inference_finished")]
    assert [(each.error.code, each.retried) for each in ended] == [("INFERENCE_MALFORMED_RESPONSE", True), ("", False)]
    assert "does not match the expected peg-native format" in ended[0].error.message
