"""`make test-model`: a real small model behind llama.cpp's server. RECORD=1 writes the cassettes of test_cassettes.py.

Not among the tests that `make test` runs: the model is 1.1 GB, and takes minutes where the machine has other work.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jsonschema_rs
import pytest

from .recorder import Recorder, recording
from .scenarios import (
    ENGINE,
    EXAMPLES,
    NOTE,
    PARTS,
    PARTS_SCHEMA,
    ROOT,
    RUN_TIMEOUT_S,
    agent_sidecar,
    assert_noted_once,
    run_to_its_end,
    run_until_noted,
    save_cassette,
)

RECORD = bool(os.environ.get("RECORD"))
MODEL = ROOT / "build/model/model.gguf"

pytestmark = [
    pytest.mark.timeout(2 * RUN_TIMEOUT_S),
    pytest.mark.skipif(not MODEL.exists(), reason="build/model has no model: tools/setup/model.sh says why"),
]


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    command = [sys.executable, str(EXAMPLES / "agent/model_server.py"), "--port", "0", *_threads()]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            lines = (line.split() for line in process.stdout or ())
            yield next(line[1] for line in lines if line[0] == "listening")
        finally:
            process.kill()


@pytest.fixture
def recorder(model_url: str) -> Iterator[Recorder]:
    with recording(model_url) as recorder:
        yield recorder


def engine(recorder: Recorder) -> str:
    return (
        f'[[engine]]\nname = "model"\nprovider = "openai"\nmodel = "qwen"\nbase_url = "{recorder.base_url}"\n{ENGINE}'
    )


async def test_a_real_model_writes_an_approved_note_once_though_its_sidecar_is_killed(
    recorder: Recorder, tmp_path: Path
) -> None:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        state = Path(name)
        with agent_sidecar(engine(recorder), tmp_path, state) as sidecar:
            before = []
            await run_until_noted(sidecar, lambda: before.extend(recorder.exchanges))
        with agent_sidecar(engine(recorder), tmp_path, state) as sidecar:
            events = await run_to_its_end(sidecar, NOTE)
    assert_noted_once(events, tmp_path)
    if RECORD:
        after = recorder.exchanges[len(before) :]
        save_cassette(
            "note",
            before_kill=[each.to_json() for each in before],
            after_kill=[each.to_json() for each in after],
            content=events[-1].finished.content,
            note=(tmp_path / "notes.txt").read_text(),
        )


async def test_a_real_model_is_held_to_a_schema(recorder: Recorder, tmp_path: Path) -> None:
    with agent_sidecar(engine(recorder), tmp_path) as sidecar:
        events = await run_to_its_end(sidecar, PARTS)
    response = events[-1].finished
    output = json.loads(response.output_json)
    jsonschema_rs.validate(PARTS_SCHEMA, output)
    assert {"sash", "fan"} <= {word for part in output["parts"] for word in part.lower().split()}
    if RECORD:
        save_cassette("parts", answers=[each.to_json() for each in recorder.exchanges], output=output)


def test_the_demo_comes_out_as_it_says() -> None:
    command = [sys.executable, str(EXAMPLES / "agent/demo.py"), *_threads()]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "goes on from its record" in done.stdout


def _threads() -> list[str]:
    return ["--threads", os.environ["THREADS"]] if "THREADS" in os.environ else []
