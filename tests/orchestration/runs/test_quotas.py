"""Quotas over inferences: what several runs may ask of engines in all, whoever is killed when."""

from __future__ import annotations

import asyncio
import json
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fumehood.v1 import orchestration_service_pb2 as pb

from tests.cli.command import fumehood
from tests.orchestration.scripted import ScriptedModel
from tests.postgresql import PostgresServer

from .bench import asked, model_sidecar, run, runs_of

TOKENS = '[[policy.quota]]\nname = "tokens"\ntokens = 200\nwindow = "1d"\nper = ["session"]\n'
INFERENCES = '[[policy.quota]]\nname = "asks"\ninferences = 5\nwindow = "1d"\nengines = ["scripted"]\n'
COST = '[[policy.quota]]\nname = "cost"\ncost = "0.00025"\nwindow = "1d"\n'
ELSEWHERE = '[[policy.quota]]\nname = "other"\ninferences = 1\nwindow = "1d"\nengines = ["other"]\n'


@pytest.fixture
def state() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        yield Path(name)


def why(response: pb.SystemResponse) -> tuple[str, str]:
    details = json.loads(response.error.details_json or "{}")
    return response.error.code, str(details.get("quota", ""))


async def test_tokens_are_counted_at_the_end_by_session_and_over_a_restart(
    scripted_model: ScriptedModel, tmp_path: Path, state: Path
) -> None:
    config = str(state / "fumehood.toml")
    for _ in range(3):
        scripted_model.says("Yes.", usage=(100, 50))
    with model_sidecar(scripted_model, tmp_path, more=TOKENS, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            assert [(await run(stub, asked(session_id="a"))).state for _ in range(2)] == ["COMPLETE"] * 2
            refused = await run(stub, asked(session_id="a", request_id="refused"))
            assert (await run(stub, asked(session_id="b"))).state == "COMPLETE"
        shown = json.loads(fumehood("policy", "quotas", "--json", "--config", config).stdout)["quotas"]
        sidecar.signal(signal.SIGKILL)
        sidecar.wait()
    assert (refused.state, why(refused)) == ("FAILED", ("TOOL_QUOTA_EXCEEDED", "tokens"))
    details = json.loads(refused.error.details_json)
    assert {name: details[name] for name in ("counts", "limit", "left", "window_s")} == {
        "counts": "tokens",
        "limit": "200",
        "left": "0",
        "window_s": 86_400,
    }
    assert 86_000 < details["retry_after_s"] < 90_000
    assert refused.error.retryable
    assert [(each["key"]["session"], each["used"]) for each in shown[0]["keys"]] == [("a", "300"), ("b", "150")]
    with model_sidecar(scripted_model, tmp_path, more=TOKENS, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            assert why(await run(stub, asked(session_id="a"))) == ("TOOL_QUOTA_EXCEEDED", "tokens")
            assert await run(stub, asked(session_id="a", request_id="refused")) == refused
    assert len(scripted_model.requests()) == 3
    replayed = fumehood("journal", "replay", "refused", "--config", config)
    assert replayed.status == 0, replayed.stdout + replayed.stderr
    shown_run = fumehood("journal", "show", "refused", "--config", config)
    assert shown_run.status == 0, shown_run.stdout + shown_run.stderr
    assert "TOOL_QUOTA_EXCEEDED" in shown_run.stdout


async def test_as_many_are_asked_at_once_as_there_are_left(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    scripted_model.says("Yes.", times=None)
    with model_sidecar(scripted_model, tmp_path, more=INFERENCES + ELSEWHERE) as sidecar:
        async with runs_of(sidecar) as stub:
            said = await asyncio.gather(*(run(stub, asked()) for _ in range(16)))
        told = await asyncio.to_thread(fumehood, "run", "Go.", address=sidecar.target)
    assert told.status != 0
    assert "quota asks lets 5 inferences" in told.stderr
    assert "`fumehood policy quotas` shows" in told.stderr
    assert sorted(each.state for each in said) == ["COMPLETE"] * 5 + ["FAILED"] * 11
    assert {why(each) for each in said} == {("", ""), ("TOOL_QUOTA_EXCEEDED", "asks")}
    assert len(scripted_model.requests()) == 5


async def test_two_sidecars_of_one_journal_count_together(
    scripted_model: ScriptedModel, tmp_path: Path, state: Path, postgres_server: PostgresServer
) -> None:
    scripted_model.says("Yes.", times=None)
    more = f'{INFERENCES}[journal]\nstore = "{postgres_server.new_database()}"\n'
    (state / "b").mkdir()
    with (
        model_sidecar(scripted_model, tmp_path, more=more, at=state) as first,
        model_sidecar(scripted_model, tmp_path, more=more, at=state / "b") as second,
    ):
        async with runs_of(first) as one, runs_of(second) as two:
            said = await asyncio.gather(*(run(each, asked()) for each in (one, two) for _ in range(8)))
    assert sorted(each.state for each in said) == ["COMPLETE"] * 5 + ["FAILED"] * 11
    assert len(scripted_model.requests()) == 5


async def test_what_a_killed_sidecar_has_asked_counts(
    scripted_model: ScriptedModel, tmp_path: Path, state: Path
) -> None:
    scripted_model.says("late", latency=30_000, times=None)
    with model_sidecar(scripted_model, tmp_path, more=INFERENCES, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            asking = [asyncio.create_task(run(stub, asked())) for _ in range(5)]
            await scripted_model.arrived(5)
            sidecar.signal(signal.SIGKILL)
            sidecar.wait()
            await asyncio.gather(*asking, return_exceptions=True)
    with model_sidecar(scripted_model, tmp_path, more=INFERENCES, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            assert why(await run(stub, asked())) == ("TOOL_QUOTA_EXCEEDED", "asks")
    assert len(scripted_model.requests()) == 5


async def test_cost_is_counted_by_the_engines_prices(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    scripted_model.says("Yes.", usage=(100, 50), times=None)
    prices = "input_price = 1.0\noutput_price = 2.0\n"  # 0.0002 an answer
    with model_sidecar(scripted_model, tmp_path, more=COST, engine=prices) as sidecar:
        async with runs_of(sidecar) as stub:
            said = [why(await run(stub, asked())) for _ in range(3)]
    assert said == [("", ""), ("", ""), ("TOOL_QUOTA_EXCEEDED", "cost")]
