"""The official servers for Node.js with a package among theirs that attacks: their tools work, and it reaches nothing.

What it tries, it tries when a process begins: one that is asked for its tools, and one of each level that is called.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fumehood.v1 import plugin_service_pb2 as pb
from fumehood.v1 import tool_pb2
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub

from tests.mcp.reach import as_plain_user, open_folders
from tests.mcp.real_servers import node_plugin
from tests.mcp.support import SERVERS, Caller
from tests.mcp.web import web_server
from tests.sidecar import Sidecar, running_sidecar

LOADED = ("--require", "./poison.cjs")
READ_CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "everything": ("echo", {"message": "hi"}),
    "filesystem": ("list_allowed_directories", {}),
    "memory": ("read_graph", {}),
    "sequential-thinking": (
        "sequentialthinking",
        {"thought": "a", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
    ),
}
WRITE_CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "everything": ("toggle_simulated_logging", {}),
    "filesystem": ("write_file", {"content": "two"}),  # its `path` is in the granted folder
    "memory": (
        "create_entities",
        {"entities": [{"name": "hood", "entityType": "cabinet", "observations": ["draws air"]}]},
    ),
}
"""Sequential thinking has no tool that writes."""


@dataclass(frozen=True)
class Poisoned:
    """A sidecar with the servers, and what the package is after."""

    sidecar: Sidecar
    aims: dict[str, Any]


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Poisoned]:
    folder = tmp_path_factory.mktemp("poisoned")
    with open_folders("granted", "private") as (granted, private), web_server() as port:
        (private / "key").write_text("a key")
        aims = {
            "granted": f"{granted}/new",
            "outside": f"{private}/new",
            "read": f"{private}/key",
            "port": port,
        }
        plugins = []
        for server in READ_CALLS:
            own = aims | {"granted": f"{granted}/new-{server}"}  # plugins of a root sidecar are users of their own
            variables = f"AIMS = {json.dumps(json.dumps(own))}\nMEMORY_FILE_PATH = '{granted}/graph.jsonl'"
            arguments = [str(granted)] if server == "filesystem" else []
            plugin = node_plugin(folder / server, server, *arguments, options=LOADED, environment=variables)
            shutil.copy(SERVERS / "poison.cjs", plugin)
            grants = f'max_side_effects = "write"\nwrite = ["{granted}"]\n'
            if server in WRITE_CALLS:
                grants += f"[plugin.tools.{WRITE_CALLS[server][0]}]\npermission = 'allow'\n"
            plugins.append((plugin, grants))
        with running_sidecar(plugins) as sidecar:
            yield Poisoned(sidecar, aims)


@pytest.fixture
async def caller(poisoned: Poisoned) -> AsyncIterator[Caller]:
    async with poisoned.sidecar.channel() as channel:
        yield Caller(channel)


async def outcomes(poisoned: Poisoned, plugin: str, count: int) -> list[dict[str, str]]:
    """What came of the first attacks of a plugin's processes, as many as that, in order."""
    found: list[dict[str, str]] = []
    async with poisoned.sidecar.channel() as channel, asyncio.timeout(60):
        request = pb.TailPluginLogsRequest(name=plugin, lines=1000, follow=True)
        async for line in PluginServiceStub(channel).TailPluginLogs(request):
            if line.message.startswith("intruder "):
                found.append(json.loads(line.message.removeprefix("intruder ")))
                if len(found) == count:
                    break
    return found


def test_outside_the_package_reaches_all_of_it(poisoned: Poisoned) -> None:
    environment = {**os.environ, "AIMS": json.dumps(poisoned.aims)}
    with as_plain_user():
        command = ["node", str(SERVERS / "poison.cjs")]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=60)
    assert set(json.loads(done.stderr.removeprefix("intruder ")).values()) == {"done"}
    for aim in ("granted", "outside"):
        Path(poisoned.aims[aim]).unlink()


@pytest.mark.parametrize("server", READ_CALLS)
async def test_server_with_it_answers_at_level_read_and_it_reaches_nothing(
    caller: Caller, poisoned: Poisoned, server: str
) -> None:
    tool, arguments = READ_CALLS[server]
    result = await caller.call(tool, **arguments)
    assert not result.is_error, result.error
    for outcome in await outcomes(poisoned, server, 2):
        assert outcome.pop("granted") in {"EROFS", "ENOENT"}, "which it may read at most"
        assert outcome.pop("dial") != "done"
        assert outcome == {"outside": "ENOENT", "read": "ENOENT"}, "what was not granted is not there"


@pytest.mark.parametrize("server", WRITE_CALLS)
async def test_at_level_write_it_reaches_the_granted_folder_and_no_more(
    caller: Caller, poisoned: Poisoned, server: str
) -> None:
    reading, writing = READ_CALLS[server], WRITE_CALLS[server]
    written = Path(poisoned.aims["granted"]).with_name("two")
    path = {"path": str(written)} if server == "filesystem" else {}
    assert not (await caller.call(reading[0], **reading[1])).is_error
    result = await caller.call(writing[0], **writing[1], **path)
    assert not result.is_error, result.error
    assert result.sandbox.side_effects == tool_pb2.SIDE_EFFECTS_WRITE
    assert not path or written.read_text() == "two"
    *_, outcome = await outcomes(poisoned, server, 3)
    assert outcome.pop("granted") == "done", "which that level is for"
    assert outcome.pop("dial") != "done"
    assert outcome == {"outside": "ENOENT", "read": "ENOENT"}, "what was not granted is not there"
