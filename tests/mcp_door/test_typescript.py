"""The official SDK for TypeScript, in both revisions and over both transports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.callers.support import token_of
from tests.sidecar import Sidecar, running_sidecar

from .support import BOUND_S, MODERN, url_of
from .test_approvals import RULES

CLIENT = Path(__file__).parent / "typescript" / "client.mjs"


@pytest.fixture(scope="module")
def sidecar(plugin_folder: Path) -> Iterator[Sidecar]:
    with running_sidecar([(plugin_folder, 'max_side_effects = "write"')], more=RULES) as running:
        yield running


@pytest.mark.parametrize("revision", [MODERN, "2025-11-25"])
@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_it_lists_calls_follows_approves_and_cancels(sidecar: Sidecar, transport: str, revision: str) -> None:
    serve = (sys.executable, "-P", "-m", "fumehood_server", "mcp", "--address", sidecar.target)
    where = serve if transport == "stdio" else (url_of(sidecar), token_of(sidecar.folder, "owner"))
    environment = {**os.environ, "REVISION": revision}
    command = ["node", CLIENT, transport, *where]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    failed = seen.pop("failed")
    assert (failed["isError"], failed["structuredContent"]["error"]["code"]) == (True, "TOOL_EXECUTION_FAILED")
    assert seen == {
        "revision": revision,
        "names": ["add", "count", "fail", "note", "say", "show", "wait"],
        "said": [{"type": "text", "text": "größer"}],
        "sum": {"total": 3},
        "counted": [{"type": "text", "text": "counted to 2"}],
        "step": [1, 2],
        "noted": [{"type": "text", "text": f"noted {transport} {revision}"}],
        "asked": 1,
        "cancelled": True,
        "after": "on",
    }
