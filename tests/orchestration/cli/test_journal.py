"""Runs of models in `fumehood journal show` and `list --runs`: what a sidecar recorded, and what a crash cut."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from fumehood_server.cli.journal_waterfall import bars_of
from fumehood_server.journal.encoding import decode, encode
from fumehood_server.model.events import About, Event
from fumehood_server.model.run_events import (
    InferenceEnd,
    InferenceStart,
    LifecycleTransition,
    RunResumed,
    RunStarted,
    RunToolRefused,
)

from tests.cli.command import fumehood, on_terminal
from tests.orchestration.runs.bench import model_sidecar
from tests.orchestration.scripted import ScriptedModel
from tests.sidecar import Sidecar


@pytest.fixture(scope="module")
def recorded(model_server: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """A run of a session that called a tool and had to ask twice, and one that failed."""
    model_server.clear()
    model_server.calls(("add", {"a": 1, "b": 2}), ("rm", {}))
    model_server.fails(429, retry_after=2)  # a wait that is long enough to be drawn
    model_server.says("3")
    model_server.fails(401)
    with model_sidecar(model_server, tmp_path_factory.mktemp("shown"), engine="attempts = 2") as sidecar:
        done = fumehood("run", "Add.", "--id", "adding", "--session", "sums", "--quiet", address=sidecar.target)
        assert done.stdout == "3\n", done.stderr
        assert fumehood("run", "Fail.", "--id", "failing", "--quiet", address=sidecar.target).status == 1
        yield sidecar


def shown(sidecar: Sidecar, what: str) -> list[str]:
    status, drawn = on_terminal("journal", "show", what, "--config", sidecar.folder / "fumehood.toml")
    assert status == 0
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", drawn).splitlines() if line.strip()]


def test_show_draws_states_inferences_waits_and_calls_on_one_axis(recorded: Sidecar) -> None:
    heading, *lines = shown(recorded, "adding")
    what = heading.index("WHAT")
    rows = [line for line in lines if not line.startswith(" ")]  # what follows of the last column is below its row
    names = [line[what : heading.index("0 ")].strip() for line in rows]
    assert names == [
        *("run chat", "INIT", "PREPARE", "EXECUTE", "VALIDATE", "COMPLETE"),
        *("chat1-1", "refused", "add", "chat1-2", "chat1-2"),
    ]
    drawn = dict(zip(names, rows, strict=True))
    assert "░" in drawn["chat1-2"], "the second try waited"
    assert "INFERENCE_" in rows[-2]
    assert "stop" in rows[-1]
    assert max(map(len, (heading, *lines))) <= 100


def test_show_of_a_session_draws_its_runs(recorded: Sidecar) -> None:
    lines = shown(recorded, "sums")
    assert any("run chat" in line for line in lines)
    assert any("session_turn" in line for line in lines)


def test_list_names_runs_of_models_with_how_they_ended(recorded: Sidecar) -> None:
    config = ("--config", recorded.folder / "fumehood.toml")
    failed, added = fumehood("journal", "list", "--runs", "--json", *config).json["runs"]
    assert (failed["run_id"], failed["state"], failed["tool_calls"]) == ("failing", "FAILED", 0)
    assert failed["error_code"].startswith("INFERENCE_")
    assert (added["run_id"], added["session_id"], added["state"]) == ("adding", "sums", "COMPLETE")
    assert (added["mode"], added["engine"], added["inferences"], added["tokens"]) == ("chat", "scripted", 2, 30)

    def found(*asked: str) -> list[str]:
        return [
            each["run_id"] for each in fumehood("journal", "list", "--runs", "--json", *asked, *config).json["runs"]
        ]

    assert found("--outcome", "OK") == found("--session", "sums") == found("--run", "sums") == ["adding"]
    assert found("--outcome", failed["error_code"]) == found("-n", "1") == ["failing"]
    assert found("--tool", "add") == [], "a run is of no tool"
    table = fumehood("journal", "list", "--runs", *config).stdout.splitlines()
    assert [line.split()[-1] for line in table] == ["RUN", "failing", "adding"]
    assert fumehood("journal", "list", "--runs", "--events", *config).status == 2
    calls = fumehood("journal", "list", "--run", "sums", "--json", *config).json["calls"]
    assert [each["tool"] for each in calls] == ["add"], "a session's id finds its calls"


def asks(name: str, attempt: int = 1) -> InferenceStart:
    return InferenceStart(
        name=name,
        attempt=attempt,
        engine="e",
        input_hash="",
        message_count=1,
        tool_defs_count=0,
        schema_present=False,
        grammar_present=False,
        temperature=None,
    )


def answers(name: str, *, code: str = "", is_last: bool = True, model: str = "m") -> InferenceEnd:
    return InferenceEnd(
        name=name,
        attempt=1,
        input_hash="",
        duration_us=1,
        tokens_in=1,
        tokens_out=1,
        cost=0.0,
        finish_reason="error" if code else "stop",
        tool_call_count=0,
        error_code=code,
        is_last=is_last,
        model=model,
        answer=None,
    )


START = RunStarted(
    mode="chat",
    engine="e",
    request_hash="",
    request=None,
    tools="",
    caller="a",
    authenticated_by="",
    configuration="",
)
EXECUTE = LifecycleTransition(from_state="INIT", to_state="EXECUTE", attempt=1, reason="go")


def drawn(*events: tuple[int, Event]) -> list[tuple[str, int | None, int | None, str]]:
    """Bars and what is beneath them: name, start and end in seconds, text."""
    about = About(run_id="r")
    bars = bars_of(
        decode(encode(event, about, time_us=at * 1_000_000, sidecar="0a0b0c0d").body) for at, event in events
    )

    def second(time_us: int | None) -> int | None:
        return None if time_us is None else time_us // 1_000_000

    lines = [each for bar in bars for each in (bar, *bar.within)]
    return [(each.name.strip(), second(each.start_us), second(each.end_us), each.text) for each in lines]


def test_what_a_crash_cut_ends_with_the_last_word_before_it() -> None:
    before = ((0, START), (1, EXECUTE), (2, asks("chat1-1")))
    after = ((9, RunResumed(inferences=0)), (10, EXECUTE), (10, asks("chat1-1")))
    assert drawn(*before, *after, (12, answers("chat1-1"))) == [
        ("run chat", 0, None, "has no end"),
        ("INIT", 0, 1, ""),
        ("EXECUTE", 1, 2, "go"),
        ("run_resumed", 9, 9, "goes on with 0 answers on record"),
        ("INIT", 9, 10, ""),
        ("EXECUTE", 10, None, "go"),
        ("chat1-1", 2, 2, "was interrupted"),
        ("chat1-1", 10, 12, "stop, 1 + 1 tokens, m"),
    ]


def test_a_record_without_its_beginning_is_drawn_as_far_as_it_goes() -> None:
    refused = RunToolRefused(inference="gone", index=0, tool="rm", reason="not_offered")
    assert [name for name, *_ in drawn((1, EXECUTE), (1, answers("gone")), (2, refused), (3, asks("here")))] == [
        *("lifecycle_transition", "inference_end", "run_tool_refused", "here"),
    ]
