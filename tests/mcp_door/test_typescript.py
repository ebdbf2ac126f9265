"""The official SDK for TypeScript, in both revisions and over both transports."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from fumehood.v1 import plugin_service_pb2, plugin_service_pb2_grpc

from tests.callers.support import token_of
from tests.sidecar import Sidecar, running_sidecar

from .support import BOUND_S, MODERN, url_of
from .test_approvals import RULES

pytestmark = pytest.mark.slow(
    "the official client in Node, for each revision and transport; that in Python comes in time"
)

CLIENT = Path(__file__).parent / "typescript" / "client.mjs"
LISTENING = CLIENT.with_name("listening.mjs")
TURN_S = 3.0
"""Longer than a round of the server's looks at the tools."""


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
    assert (failed["isError"], failed["_meta"]["fumehood/error"]["code"]) == (True, "TOOL_EXECUTION_FAILED")
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


@pytest.mark.parametrize("revision", [MODERN, "2025-11-25"])
def test_it_is_told_of_changed_tools(sidecar: Sidecar, revision: str) -> None:
    command = ["node", LISTENING, url_of(sidecar), token_of(sidecar.folder, "owner")]
    with (
        subprocess.Popen(
            command, env={**os.environ, "REVISION": revision}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        ) as client,
        grpc.insecure_channel(sidecar.target) as channel,
    ):
        assert client.stdin is not None
        assert client.stdout is not None
        plugins = plugin_service_pb2_grpc.PluginServiceStub(channel)
        try:
            assert json.loads(client.stdout.readline()) == {"revision": revision}
            for _ in range(int(BOUND_S / TURN_S)):  # when it has begun to listen, nobody says
                plugins.DisablePlugin(plugin_service_pb2.DisablePluginRequest(name="speech"))
                if select.select([client.stdout], [], [], TURN_S)[0]:
                    break
                plugins.EnablePlugin(plugin_service_pb2.EnablePluginRequest(name="speech"))
            assert json.loads(client.stdout.readline()) in ([], ["add", "count", "fail", "note", "say", "show", "wait"])
        finally:
            plugins.EnablePlugin(plugin_service_pb2.EnablePluginRequest(name="speech"))
            client.stdin.close()
        assert client.wait(BOUND_S) == 0
