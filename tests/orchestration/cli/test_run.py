"""`fumehood run` where no terminal is: answers, events, exit statuses, hostile text, and what goes on after an end."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import preloaded
from tests.broken_network import relay
from tests.cli.command import COMMAND, TIMEOUT_S, environment, fumehood
from tests.cli.hostile import HOSTILE, raw_controls
from tests.orchestration.runs.bench import model_sidecar
from tests.orchestration.scripted import ScriptedModel
from tests.sidecar import Sidecar


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def sidecar(model_server: ScriptedModel, folder: Path) -> Iterator[Sidecar]:
    with model_sidecar(model_server, folder, permission="require_approval", engine="attempts = 2") as running:
        yield running


def test_the_answer_is_on_stdout_and_what_happens_on_stderr(scripted_model: ScriptedModel, sidecar: Sidecar) -> None:
    scripted_model.calls(("add", {"a": 1, "b": 2}), text="Let me add.")
    scripted_model.fails(503)
    scripted_model.says("It is 3.")
    done = fumehood("run", "Add 1 and 2.", "--system", "Be short.", address=sidecar.target)
    assert (done.status, done.stdout) == (0, "It is 3.\n"), done.stderr
    lines = done.stderr.splitlines()
    assert "tool add(a=1, b=2)" in lines
    assert any(line.startswith("tool add ok: 3 in ") for line in lines)
    assert any("it is asked again" in line for line in lines)
    assert "\x1b" not in done.stderr
    roles = [(each["role"], each["content"]) for each in scripted_model.requests()[0]["messages"]]
    assert roles == [("system", "Be short."), ("user", "Add 1 and 2.")]


def test_json_is_a_line_an_event_and_with_quiet_the_response_alone(
    scripted_model: ScriptedModel, sidecar: Sidecar
) -> None:
    scripted_model.calls(("add", {"a": 1, "b": 2}))
    scripted_model.says("3")
    lines = fumehood("run", "Add.", "--json", "--id", "as-json", address=sidecar.target).lines
    assert (lines[0]["event"], lines[0]["request_id"]) == ("started", "as-json")
    assert {"transition", "inference_started", "text", "tool_started", "tool_finished"} < {e["event"] for e in lines}
    assert lines[-1]["response"]["tool_calls_made"][0]["tool"] == "add"
    again = fumehood("run", "Add.", "--json", "--quiet", "--id", "as-json", address=sidecar.target)
    assert again.json == lines[-1]["response"], "the same id is answered from the record"
    assert fumehood("run", "Add.", "--quiet", "--id", "as-json", address=sidecar.target).stdout == "3\n"
    assert len(scripted_model.requests()) == 2


def test_options_reach_the_model(scripted_model: ScriptedModel, sidecar: Sidecar, tmp_path: Path) -> None:
    scripted_model.says("a", times=2)
    messages = tmp_path / "messages.jsonl"
    said = [{"role": "user", "text": "One."}, {"role": "assistant", "text": "Two."}]
    messages.write_text("\n".join(map(json.dumps, said)))
    bounds = ("--max-tokens", "7", "--temperature", "0.5", "--tool", "add", "--engine", "scripted")
    done = fumehood("run", "-", "--message-file", messages, *bounds, address=sidecar.target, stdin="Three.\n")
    assert done.status == 0, done.stderr
    assert fumehood("run", "Four.", "--no-tools", "--session", "s-1", address=sidecar.target).status == 0
    first, second = scripted_model.requests()
    assert [each["content"] for each in first["messages"]] == ["One.", "Two.", "Three."]
    assert [each["function"]["name"] for each in first["tools"]] == ["add"]
    assert 7 in {first.get("max_tokens"), first.get("max_completion_tokens")}
    assert first["temperature"] == 0.5
    assert not second.get("tools")


def test_a_session_goes_on_where_it_was(scripted_model: ScriptedModel, sidecar: Sidecar) -> None:
    scripted_model.says("I am well.")
    scripted_model.says("You asked how I am.")
    for prompt in ("How are you?", "What did I ask?"):
        assert fumehood("run", prompt, "--session", "talk", address=sidecar.target).status == 0
    told = [each["content"] for each in scripted_model.requests()[1]["messages"]]
    assert told == ["How are you?", "I am well.", "What did I ask?"]


def test_a_run_that_fails_is_status_1_and_says_what_to_do(scripted_model: ScriptedModel, sidecar: Sidecar) -> None:
    scripted_model.calls(("add", {"a": 1, "b": 1}), times=None)
    done = fumehood("run", "Go.", "--max-iterations", "2", address=sidecar.target)
    assert (done.status, done.stdout) == (1, "")
    assert "[ORCHESTRATION_ITERATION_LIMIT]" in done.stderr
    assert "--max-iterations" in done.stderr.splitlines()[-1]
    budget = fumehood("run", "Go.", "--budget-tool-calls", "1", "--json", "--quiet", address=sidecar.target)
    assert (budget.status, budget.json["error"]["code"]) == (1, "TOOL_QUOTA_EXCEEDED")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), "USAGE"),
        (("Go.", "--mode", "chat", "--schema", "SCHEMA"), "REQUEST_INVALID"),
        (("Go.", "--mode", "chat", "--replicas", "3"), "REQUEST_INVALID"),
        (("Go.", "--schema", "nowhere.json"), "BAD_ARGUMENTS"),
        (("Go.", "--id", "a b"), "REQUEST_INVALID"),
        (("Go.", "--mode", "plan", "--max-iterations", "3"), "USAGE"),
        (("Go.", "--temperature", "3"), "USAGE"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else each,
)
def test_a_request_that_is_wrong_is_status_2(
    sidecar: Sidecar, tmp_path: Path, arguments: tuple[str, ...], code: str
) -> None:
    (tmp_path / "SCHEMA").write_text("{}")
    done = fumehood("run", *arguments, "--json", address=sidecar.target, folder=tmp_path)
    assert (done.status, done.error["code"]) == (2, code), done.stderr


def test_an_engine_that_there_is_none_of_is_status_2_where_it_was_named(sidecar: Sidecar) -> None:
    done = fumehood("run", "Go.", "--engine", "other", address=sidecar.target)
    assert done.status == 2
    assert "[CONFIG_NO_ENGINE]" in done.stderr


def test_a_sidecar_that_is_not_there_is_status_3(tmp_path: Path) -> None:
    done = fumehood("run", "Go.", "--json", address=f"unix:{tmp_path}/none")
    assert (done.status, done.error["code"]) == (3, "UNREACHABLE")


def test_models_and_tools_can_give_no_orders_to_a_terminal_through_a_pipe(
    scripted_model: ScriptedModel, sidecar: Sidecar
) -> None:
    scripted_model.calls(("fail", {"why": HOSTILE}), (HOSTILE[:40], {}))
    scripted_model.says(HOSTILE)
    plain = fumehood("run", "Go.", "--id", "hostile", address=sidecar.target)
    as_json = fumehood("run", "Go.", "--id", "hostile", "--json", address=sidecar.target)
    assert raw_controls(plain.stderr) == []
    assert raw_controls(as_json.stdout) == []
    assert as_json.lines[-1]["response"]["content"] == HOSTILE
    assert plain.stdout == f"{HOSTILE}\n", "the answer is data, as that of `call` is"


def test_without_a_terminal_it_is_said_how_to_approve_elsewhere(
    scripted_model: ScriptedModel, sidecar: Sidecar, folder: Path
) -> None:
    scripted_model.calls(("note", {"path": str(folder / "notes/elsewhere"), "text": "x"}))
    scripted_model.says("Noted.")
    with _started("run", "Go.", address=sidecar.target) as process:
        line = _line(process, "waits for an approval")
        approval_id = line.split()[-1]
        assert line.strip().endswith(f"fumehood approvals approve {approval_id}")
        assert fumehood("approvals", "approve", approval_id, address=sidecar.target).status == 0
        stdout, _ = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, stdout) == (0, "Noted.\n")
    assert (folder / "notes/elsewhere").read_text() == "x\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_signal_stops_the_run_and_the_same_command_with_its_id_goes_on(
    scripted_model: ScriptedModel, sidecar: Sidecar, number: signal.Signals
) -> None:
    scripted_model.calls(("add", {"a": 1, "b": 2}), ("wait", {"seconds": 25}))
    scripted_model.says("Done.")
    with _started("run", "Go on.", "--tool", "add", "--tool", "wait", address=sidecar.target) as process:
        _line(process, "waiting")
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, stdout) == (128 + number, "")
    request_id = stderr.split("--id ")[-1].split()[0]
    assert f"fumehood run --id {request_id} 'Go on.' --tool add --tool wait" in stderr
    again = fumehood(
        *("run", "--id", request_id, "Go on.", "--tool", "add", "--tool", "wait", "--json"), address=sidecar.target
    )
    assert (again.status, again.lines[-1]["response"]["content"]) == (0, "Done.")
    assert again.lines[0]["resumed"]
    assert len(scripted_model.requests()) == 2, "what was answered is not asked again"


def test_a_reader_that_closes_stdout_stops_the_run(scripted_model: ScriptedModel, sidecar: Sidecar) -> None:
    scripted_model.calls(("wait", {"seconds": 0.5}), ("wait", {"seconds": 25}))
    scripted_model.says("Done.")
    with _started("run", "Go.", "--json", "--id", "closed", address=sidecar.target) as process:
        while _event(process)["event"] != "tool_update":
            pass
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(TIMEOUT_S) == 0, "as `head` has it"
    again = fumehood("run", "Go.", "--json", "--id", "closed", address=sidecar.target)
    assert (again.lines[0]["resumed"], again.lines[0]["joined"]) == (True, False), "it was stopped, and goes on"
    assert again.lines[-1]["response"]["content"] == "Done."


def test_engines_tools_and_sessions_are_completed(
    scripted_model: ScriptedModel, sidecar: Sidecar, tmp_path: Path
) -> None:
    (tmp_path / "fumehood.toml").write_text(scripted_model.engine_table("scripted-one"))

    def completed(words: str) -> str:
        more = {"_FUMEHOOD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        return fumehood(address=sidecar.target, folder=tmp_path, more=more).stdout

    assert completed("fumehood run --engine scr") == "plain,scripted-one\n"
    assert completed("fumehood run --tool no") == "plain,note\n"
    assert completed("fumehood run --consensus un") == "plain,unanimous\n"


def test_a_lost_connection_is_made_again_and_nothing_is_shown_twice(
    scripted_model: ScriptedModel, sidecar: Sidecar, folder: Path
) -> None:
    let_go = folder / "signals/met-again"
    scripted_model.calls(("hold", {"path": str(let_go)}), text="One moment.")
    scripted_model.says("Done.")
    with relay(sidecar.target) as network, _started("run", "Go.", "--json", address=network.address) as process:
        events = [_event(process)]
        while events[-1]["event"] != "tool_update":
            events.append(_event(process))
        network.cut()
        _line(process, "The connection was lost")
        network.mend()
        while events[-1]["event"] != "started":  # again
            events.append(_event(process))
        let_go.touch()
        stdout, _ = process.communicate(timeout=TIMEOUT_S)
    events += map(json.loads, stdout.splitlines())
    joined = [each["joined"] for each in events if each["event"] == "started"]
    assert joined == [False, True]
    assert "".join(each["text"] for each in events if each["event"] == "text") == "One moment.Done."
    numbers = [each["sequence"] for each in events if each["sequence"]]
    assert numbers == list(range(1, len(numbers) + 1))
    assert process.returncode == 0


def test_a_sidecar_that_is_killed_and_started_again_goes_on_with_the_run(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    place, path, let_go = tmp_path / "s", tmp_path / "notes/a", tmp_path / "signals/let-go"
    place.mkdir()
    scripted_model.calls(("note", {"path": str(path), "text": "once"}))
    scripted_model.calls(("hold", {"path": str(let_go)}))
    scripted_model.says("Done.")
    with model_sidecar(scripted_model, tmp_path, at=place) as first:
        process_of = _started("run", "Go.", "--json", address=first.target)
        process = process_of.__enter__()
        while _event(process)["event"] != "tool_update":
            pass
        first.signal(signal.SIGKILL)
        first.wait()
    let_go.touch()
    _line(process, "The connection was lost")
    with process_of, model_sidecar(scripted_model, tmp_path, at=place):
        stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    events = [json.loads(line) for line in stdout.splitlines()]
    assert process.returncode == 0, stderr
    assert [each["resumed"] for each in events if each["event"] == "started"] == [True]
    assert events[-1]["response"]["content"] == "Done."
    assert path.read_text() == "once\n"


def _started(*arguments: str, address: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return preloaded.Popen(
        [*COMMAND, *arguments],
        env=environment(address),
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )


def _line(process: subprocess.Popen[str], text: str) -> str:
    """The first line of stderr that has it."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return line
    raise AssertionError(f"the command ended without {text!r}")


def _event(process: subprocess.Popen[str]) -> dict[str, object]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the command has ended"
    shape = json.loads(line)
    assert isinstance(shape, dict)
    return shape
