"""`requestState` (2026-07-28) beside another request, and of hostile form: no answer that comes with it is taken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.callers.support import token_of
from tests.mcp.support import mcp_plugin
from tests.sidecar import Sidecar, running_sidecar

from .support import modern, request, url_of
from .test_approvals import RULES
from .test_questions import ELICITATION, told

FORMS = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
INVALID_PARAMS = -32602


@pytest.fixture(scope="module")
def sidecar(plugin_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    asking = mcp_plugin(tmp_path_factory.mktemp("asking") / "asking")
    with running_sidecar(
        [(plugin_folder, 'max_side_effects = "write"'), (asking, 'prefix = "new_"')], more=RULES
    ) as running:
        running.logged(event="mcp_serving")
        yield running


def sent(sidecar: Sidecar, name: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What the owner's request comes to."""
    body, headers = modern("tools/call", name=name, arguments=arguments, meta=FORMS, **more)
    headers["Authorization"] = f"Bearer {token_of(sidecar.folder, 'owner')}"
    _, _, answer = request(url_of(sidecar), body=body, **headers)
    found: dict[str, Any] = json.loads(answer.partition(b"data: ")[2].strip() or answer)
    return found


def test_answer_to_a_question_is_not_taken_with_another_request(sidecar: Sidecar) -> None:
    asked = sent(sidecar, "new_ask_client", ELICITATION)["result"]
    (name,) = asked["inputRequests"]
    state = {"requestState": asked["requestState"]}
    answers = {name: {"action": "accept", "content": {"colour": "red"}}}
    for tool, arguments in (("new_ask_client", {**ELICITATION, "of": "choice"}), ("say", {"text": "x"})):
        refused = sent(sidecar, tool, arguments, **state, inputResponses=answers)
        assert refused["error"]["code"] == INVALID_PARAMS, tool
    again = sent(sidecar, "new_ask_client", ELICITATION, **state, inputResponses={})["result"]
    assert again["inputRequests"] == asked["inputRequests"]  # it is open still
    answers[name]["content"] = {"colour": "blue"}
    turned = dict(reversed(ELICITATION.items()))
    result = sent(sidecar, "new_ask_client", turned, **state, inputResponses=answers)["result"]
    assert told(result["content"][0]["text"])["content"] == {"colour": "blue"}


def test_answer_to_an_approval_is_not_taken_with_another_request(sidecar: Sidecar) -> None:
    asked = sent(sidecar, "note", {"text": "one"})["result"]
    given = {"approval": {"action": "accept", "content": {"approve": True}}}
    yes = {"requestState": asked["requestState"], "inputResponses": given}
    assert sent(sidecar, "note", {"text": "two"}, **yes)["error"]["code"] == INVALID_PARAMS
    again = sent(sidecar, "note", {"text": "one"})["result"]
    assert again["inputRequests"] == asked["inputRequests"]  # nobody has decided
    assert sent(sidecar, "note", {"text": "one"}, **yes)["result"]["content"][0]["text"] == "noted one"


@pytest.mark.parametrize("state", ["[" * 2000, "[" * 500_000, "", "[]", '["x","x","x","x",1]', '{"a":1}', "\x00"])
def test_state_of_another_form_is_invalid_params(sidecar: Sidecar, state: str) -> None:
    refused = sent(sidecar, "say", {"text": "x"}, requestState=state, inputResponses={})
    assert refused["error"]["code"] == INVALID_PARAMS
    assert "Traceback" not in sidecar.stderr()
