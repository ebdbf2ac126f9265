"""What runs are asked and answer is held against the journal's events, and proven to others with the run."""

from __future__ import annotations

import sys
from pathlib import Path

from tests import preloaded
from tests.cli.command import fumehood
from tests.journal.reading import Recorded
from tests.orchestration.scripted import ScriptedModel

from .bench import asked, model_sidecar, run, runs_of


async def test_journal_with_runs_verifies_and_a_run_is_proven(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    scripted_model.calls(("add", {"a": 1, "b": 2}))
    scripted_model.says("3.")
    scripted_model.says("Yes.")
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            request = asked("Add them.", request_id="run-1", session_id="talk")
            assert (await run(stub, request)).content == "3."
            again = asked("Sure?", request_id="run-2", session_id="talk")
            assert (await run(stub, again)).content == "Yes."
        recorded = Recorded(sidecar.folder)
        await recorded.until(lambda: recorded.events("run_ended"), 2)
        done = fumehood("journal", "verify", folder=sidecar.folder)
        assert done.status == 0, done.stdout + done.stderr
        await recorded.signed()
        page = tmp_path / "run.html"
        written = fumehood("journal", "evidence", "--run", "run-1", "-o", page, folder=sidecar.folder)
        assert written.status == 0, written.stderr
        key = sidecar.folder / ".fumehood" / "journal.pub"
        command = [sys.executable, "-P", "-m", "fumehood_evidence", "verify", str(page), "--key", str(key)]
        status, told, wrong = preloaded.run(command, timeout=60)
        assert status == 0, told + wrong
