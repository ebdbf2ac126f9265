"""Questions of tools at the command line: asked on a terminal, printed as JSON, answered from elsewhere."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.mcp.support import mcp_plugin
from tests.sidecar import Sidecar, running_sidecar

from .command import COMMAND, environment, fumehood, on_terminal

ASKING = ("call", "ask_client", "method=elicitation/create", "or_fail=true")


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """The small MCP server."""
    with running_sidecar([mcp_plugin(tmp_path_factory.mktemp("asking") / "small")]) as running:
        yield running


def test_terminal_is_asked_field_by_field_until_it_fits(sidecar: Sidecar) -> None:
    typed = [
        ("Answer?", "y"),
        ("colour", "green"),
        ("count", ""),
        ("Answer?", ""),  # which is no answer
        ("Answer?", "y"),
        ("colour", "red"),
        ("count", "3"),
    ]
    status, shown = on_terminal(*ASKING, "of=choice", address=sidecar.target, typed=typed)
    assert "Which one?" in shown
    assert "doesn't fit the question" in shown
    assert '"content": {"colour": "red", "count": 3}' in shown
    assert status == 0


def test_choices_are_shown_and_taken_by_their_titles_and_what_is_required_is_no_empty_line(sidecar: Sidecar) -> None:
    typed = [
        ("Answer?", "y"),
        ("Ada (hero-1) | Bo (hero-2)", "bo"),
        ("Cy (foe-1) | foe-2", "foe-1"),
        ("note", ""),
        ("note has to be filled in", "a word"),
    ]
    status, shown = on_terminal(*ASKING, "of=titled", address=sidecar.target, typed=typed)
    assert '"content": {"hero": "hero-2", "foe": "foe-1", "note": "a word"}' in shown
    assert status == 0


def test_whatever_a_tool_writes_is_told_as_its_own(sidecar: Sidecar) -> None:
    typed = [("Answer?", "y"), ("a=b", "x=1"), ("c:", "[2]")]
    status, shown = on_terminal(*ASKING, "of=odd", address=sidecar.target, typed=typed)
    assert (status, "  | fumehood: your password" in shown) == (0, True)
    assert '"content": {"a=b": "x=1", "c:": "[2]"}' in shown


def test_no_is_an_answer_and_ctrl_c_ends_the_call(sidecar: Sidecar) -> None:
    status, shown = on_terminal(*ASKING, address=sidecar.target, typed=[("Answer?", "n")])
    assert (status, '"action": "decline"' in shown) == (0, True)
    status, shown = on_terminal(*ASKING, address=sidecar.target, typed=[("Answer?", signal.SIGINT)])
    assert (status, "was told to stop" in shown) == (130, True)


def test_elsewhere_the_refusal_says_what_to_do(sidecar: Sidecar) -> None:
    done = fumehood(*ASKING, address=sidecar.target)
    assert done.status == 1
    assert "call it on a terminal, or with --ask" in done.stderr
    status, shown = on_terminal(*ASKING, "--no-ask", address=sidecar.target)
    assert (status, "Answer?" in shown) == (1, False)


def test_program_reads_the_question_and_answers_it(sidecar: Sidecar) -> None:
    arguments = [*COMMAND, *ASKING, "of=choice", "--stream", "--json", "--ask", "--call-id", "by-program"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment(sidecar.target), text=True) as process:
        assert process.stdout is not None
        events = (json.loads(line) for line in process.stdout)
        asked = next(each for each in events if each["event"] == "question")
        assert asked["schema"]["properties"]["colour"]["enum"] == ["red", "blue"]
        ids = (asked["call_id"], asked["question_id"])
        wrong = fumehood("answer", *ids, "colour=green", address=sidecar.target)
        assert (wrong.status, "doesn't fit" in wrong.stderr) == (2, True)
        assert "The question is still open" in wrong.stderr
        assert "fumehood tools" not in wrong.stderr
        right = fumehood("answer", *ids, "colour=red", "count=2", "--json", address=sidecar.target)
        assert json.loads(right.stdout)["action"] == "accept"
        (finished,) = [each for each in events if each["event"] == "finished"]
    told = json.loads(finished["result"]["content"][0]["text"])
    assert told["result"]["content"] == {"colour": "red", "count": 2}
    gone = fumehood("answer", *ids, "--decline", address=sidecar.target)
    assert (gone.status, "is open" in gone.stderr) == (2, True)
    both = fumehood("answer", *ids, "colour=red", "--decline", address=sidecar.target)
    assert (both.status, "fills nothing in" in both.stderr) == (2, True)
