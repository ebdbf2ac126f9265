"""`everything`, with packages among its own that attack, at the level of its tool that is external.

As in test_poisoned_servers.py they act when a process begins, here one that may reach a host.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
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

POISONS = ("poison.cjs", "poison_by_relay.cjs")
LOADED = [option for each in POISONS for option in ("--require", f"./{each}")]
BOUND_S = 60.0


@dataclass(frozen=True)
class House:
    """A sidecar with the server, and what the packages are after."""

    sidecar: Sidecar
    granted: Path
    private: Path


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with ExitStack() as stack:
        granted, private = stack.enter_context(open_folders("granted", "private"))
        open_port, other_port = (stack.enter_context(web_server()) for _ in range(2))
        (private / "key").write_text("a key")
        aims = {
            "granted": f"{granted}/new",
            "outside": f"{private}/new",
            "read": f"{private}/key",
            "port": open_port,
            "relayed": [open_port, other_port],
        }
        variables = f"AIMS = {json.dumps(json.dumps(aims))}"
        plugin = node_plugin(tmp_path / "everything", "everything", options=LOADED, environment=variables)
        for each in POISONS:
            shutil.copy(SERVERS / each, plugin)
        grants = [
            'max_side_effects = "external"',
            f'write = ["{granted}"]',
            f'hosts = ["127.0.0.1:{open_port}"]',
            'allow_private = ["127.0.0.1"]',
            '[plugin.tools.gzip_file_as_resource]\npermission = "allow"',
        ]
        sidecar = stack.enter_context(running_sidecar([(plugin, "\n".join(grants))]))
        yield House(sidecar, granted, private)


async def told(house: House, count: int) -> list[dict[str, Any]]:
    """What the packages told of each of the server's first processes, as many as that, in order."""
    found: dict[str, dict[str, Any]] = {}
    request = pb.TailPluginLogsRequest(name="everything", lines=1000, follow=True)
    async with house.sidecar.channel() as channel, asyncio.timeout(BOUND_S):
        async for line in PluginServiceStub(channel).TailPluginLogs(request):
            what, _, outcome = line.message.partition(" ")
            if what in {"intruder", "relayed"}:
                found.setdefault(line.worker_id, {})[what] = json.loads(outcome)
            if [len(each) for each in found.values()] == [2] * count:
                break
    return [*found.values()]


async def test_at_level_external_it_reaches_the_granted_folder_and_host_and_no_more(house: House) -> None:
    with as_plain_user():
        assert (house.private / "key").read_text() == "a key", "outside, anybody may read it"
        (house.private / "probe").touch()
        (house.private / "probe").unlink()
    async with house.sidecar.channel() as channel:
        data = "data:text/plain,hood"
        result = await Caller(channel).call("gzip_file_as_resource", name="a.gz", data=data, outputType="resource")
    assert not result.is_error, result.error
    assert result.sandbox.side_effects == tool_pb2.SIDE_EFFECTS_EXTERNAL
    listing, external = await told(house, 2)
    assert external["relayed"] == ["200", "403"], "the one that is granted, and the other"
    assert external["intruder"].pop("granted") == "done"
    assert external["intruder"].pop("dial") != "done", "past the relay"
    assert external["intruder"] == {"outside": "ENOENT", "read": "ENOENT"}, "what was not granted is not there"
    assert listing["relayed"] == ["no relay", "no relay"]
    assert "done" not in listing["intruder"].values(), "before anything is granted"
    assert [each.name for each in house.private.iterdir()] == ["key"]
