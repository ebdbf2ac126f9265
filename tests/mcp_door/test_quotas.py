"""Quotas count what comes through the door as any call."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.callers.support import token_of
from tests.sidecar import running_sidecar

from .support import MODES, error_of, http_client, text_of, url_of

TABLES = """
[mcp]
listen = "127.0.0.1:0"
[[caller]]
name = "one"
tools = ["*"]
[[caller]]
name = "other"
tools = ["*"]
[[policy.quota]]
name = "twice"
tools = ["say"]
calls = 2
window = "1d"
per = ["caller"]
"""


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_above_a_quota_is_refused_by_its_name_and_others_run(plugin_folder: Path, mode: str) -> None:
    with running_sidecar([(plugin_folder, "")], more=TABLES) as sidecar:
        tokens = [token_of(sidecar.folder, each) for each in ("one", "other")]
        url = url_of(sidecar)
        async with http_client(url, mode, tokens[0]) as one, http_client(url, mode, tokens[1]) as other:
            for text in ("first", "second"):
                assert text_of(await one.call_tool("say", {"text": text})) == text
            error = error_of(await one.call_tool("say", {"text": "third"}))
            assert (error["code"], error["details"]["quota"]) == ("TOOL_QUOTA_EXCEEDED", "twice")
            assert error["retryable"] is True
            added = await one.call_tool("add", {"first": 1, "second": 2})
            assert added.structured_content == {"total": 3}, "the quota is of another tool"
            assert text_of(await other.call_tool("say", {"text": "third"})) == "third", "and of each caller by itself"
