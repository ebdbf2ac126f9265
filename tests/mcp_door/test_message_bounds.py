"""Bounds of what a message of an MCP client holds, which is counted before it is parsed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fumehood_server.model.json_counts import MAX_NODES, MAX_VALUES

from tests.sidecar import Sidecar, running_sidecar

from .support import MODERN, modern, request, session, url_of

TABLE = '[mcp]\nlisten = "127.0.0.1:0"\nallow_anonymous = true\n'
TOO_MUCH = [
    {"text": [[]] * MAX_NODES},
    {"text": [1] * (MAX_VALUES + 1)},
    {"text": dict.fromkeys(map(str, range(MAX_NODES)), 1)},
]


@pytest.fixture(scope="module")
def sidecar(plugin_folder: Any) -> Iterator[Sidecar]:
    with running_sidecar([plugin_folder], more=TABLE) as running:
        running.logged(event="mcp_serving")
        yield running


@pytest.mark.parametrize("era", [MODERN, "2025-11-25"])
def test_a_message_of_very_many_values_is_refused_and_a_text_of_as_many_characters_is_not(
    sidecar: Sidecar, era: str
) -> None:
    url = url_of(sidecar)
    body, headers = modern("tools/call", name="say", arguments={"text": "[],{:" * MAX_VALUES})
    if era != MODERN:
        headers = {"Mcp-Session-Id": session(url, ""), "MCP-Protocol-Version": era}
    status, _, answer = request(url, body=body, **headers)
    assert (status, b"[],{:[],{:" in answer) == (200, True)
    for body["params"]["arguments"] in TOO_MUCH:
        status, _, answer = request(url, body=body, **headers)
        error = json.loads(answer)["error"]
        assert (status, error["code"], "more than" in error["message"]) == (400, -32600, True)
