"""Ids of a call's questions: the tool's names for them, each once, and else numbers."""

from __future__ import annotations

import pytest
from fumehood_server.calls.questions import CallQuestions
from fumehood_server.calls.updates import UpdateLog
from fumehood_server.errors import PluginRequestError

HOSTILE = ["", "question-7", "x" * 65, "a b", "a/b", "a\x1b[31m", "é", "a\n", "call?question", "[redacted token]"]


def ids(*names: str) -> list[str]:
    questions, found = CallQuestions(UpdateLog()), []
    for name in names:
        with questions.waiting(name) as question_id:
            found.append(question_id)
    return found


def test_a_name_is_the_id_of_the_first_question_that_has_it() -> None:
    assert ids("user_name", "user_name", "A-1.b", "user_name") == ["user_name", "question-2", "A-1.b", "question-4"]


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_name_is_numbered(name: str) -> None:
    assert ids(name, "x" * 64, name) == ["question-1", "x" * 64, "question-3"]


def test_no_name_lets_a_call_ask_more() -> None:
    names = [f"n{number}" for number in range(64)]
    assert ids(*names) == names
    with pytest.raises(PluginRequestError, match="may ask no more"):
        ids(*names, "one")
