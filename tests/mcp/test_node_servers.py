"""The official servers for Node.js, unmodified, at the levels that their annotations come to."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb

from tests.mcp.real_servers import MISSING, MODULES, node_plugin
from tests.mcp.support import Caller, reason
from tests.sidecar import Sidecar, running_sidecar

pytestmark = pytest.mark.skipif(not MODULES.is_dir(), reason=MISSING)

ALLOW = "permission = 'allow'"
READ, WRITE, EXTERNAL = tool_pb2.SIDE_EFFECTS_READ, tool_pb2.SIDE_EFFECTS_WRITE, tool_pb2.SIDE_EFFECTS_EXTERNAL


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    folder.chmod(0o777)  # a root-started sidecar gives plugins ids of their own
    (folder / "note.txt").write_text("a note")
    return folder


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Sidecar]:
    folder = tmp_path_factory.mktemp("servers")
    written = ("write_file", "create_directory")
    allowed = "\n".join(f"[plugin.tools.{tool}]\n{ALLOW}" for tool in written)
    graph = f'MEMORY_FILE_PATH = "{data}/graph.jsonl"'
    memory = "\n".join(f"[plugin.tools.{tool}]\n{ALLOW}" for tool in ("create_entities", "read_graph"))
    plugins = [
        (
            node_plugin(folder / "files", "filesystem", str(data)),
            f'max_side_effects = "write"\nwrite = ["{data}"]\n{allowed}',
        ),
        (node_plugin(folder / "everything", "everything"), 'prefix = "every_"\nmax_side_effects = "external"'),
        (
            node_plugin(folder / "memory", "memory", environment=graph),
            f'max_side_effects = "external"\nwrite = ["{data}"]\n{memory}',
        ),
        (node_plugin(folder / "thinking", "sequential-thinking"), 'max_side_effects = "external"\none_process = true'),
    ]
    with running_sidecar(plugins) as started:
        yield started


@pytest.fixture
async def caller(sidecar: Sidecar) -> AsyncIterator[Caller]:
    async with sidecar.channel() as channel:
        yield Caller(channel)


async def test_annotations_of_the_official_servers_come_to_their_levels(caller: Caller) -> None:
    tools = await caller.tools()
    levels = {name: tool.definition.side_effects for name, tool in tools.items()}
    assert {name for name, tool in tools.items() if not tool.availability.available} == set()
    files = {name for name, tool in tools.items() if tool.plugin == "files"}
    writing = {"write_file", "edit_file", "create_directory", "move_file"}
    assert {name for name in files if levels[name] == WRITE} == writing
    assert {levels[name] for name in files - writing} == {READ}
    assert levels["every_gzip_file_as_resource"] == EXTERNAL
    assert tools["every_gzip_file_as_resource"].permission == tool_pb2.PERMISSION_REQUIRE_APPROVAL
    assert (levels["read_graph"], levels["create_entities"]) == (READ, WRITE)
    assert levels["sequentialthinking"] == READ


async def test_filesystem_reads_at_level_read_and_writes_at_level_write(caller: Caller, data: Path) -> None:
    assert await caller.text("read_text_file", path=str(data / "note.txt")) == "a note"
    await caller.text("write_file", path=str(data / "new.txt"), content="new")
    assert (data / "new.txt").read_text() == "new"
    assert await caller.text("read_text_file", path=str(data / "new.txt")) == "new"
    reading = await caller.call("read_text_file", path=str(data / "note.txt"))
    assert reading.sandbox.side_effects == READ
    assert reason(await caller.call("read_text_file", path="/etc/hostname")) == "tool_error"


async def test_everything_answers_with_each_type_of_content(caller: Caller) -> None:
    assert await caller.text("every_echo", message="hi") == "Echo: hi"
    result = await caller.call("every_get_structured_content", location="New York")
    assert set(json.loads(result.details_json)) == {"temperature", "conditions", "humidity"}
    image = await caller.call("every_get_tiny_image")
    assert [block.blob.media_type for block in image.content if block.HasField("blob")] == ["image/png"]
    links = await caller.call("every_get_resource_links", count=2)
    assert sum("resource-link" in block.blob.media_type for block in links.content) == 2
    environment = json.loads(await caller.text("every_get_env"))
    assert "PATH" in environment
    assert not {"USER", "SSH_AUTH_SOCK", "PYTEST_CURRENT_TEST"} & set(environment)


async def test_everything_tells_of_its_progress(caller: Caller) -> None:
    request = pb.CallToolRequest(
        tool="every_trigger_long_running_operation", arguments_json=json.dumps({"duration": 0.2, "steps": 4})
    )
    updates = [
        event.update
        async for event in caller.stub.StreamTool(pb.StreamToolRequest(call=request))
        if event.HasField("update")
    ]
    assert [each.progress for each in updates] == [1, 2, 3, 4]
    assert {each.total for each in updates} == {4}


async def test_memory_is_written_by_one_level_and_read_by_the_other(caller: Caller, data: Path) -> None:
    entity = {"name": "hood", "entityType": "cabinet", "observations": ["draws air"]}
    assert not (await caller.call("create_entities", entities=[entity])).is_error
    graph = json.loads((await caller.call("read_graph")).details_json)
    assert [each["name"] for each in graph["entities"]] == ["hood"]
    assert (data / "graph.jsonl").exists()


async def test_thinking_keeps_its_state_in_one_process(caller: Caller) -> None:
    thought = {"thought": "a", "nextThoughtNeeded": True, "totalThoughts": 2}
    lengths = []
    for number in (1, 2):
        result = await caller.call("sequentialthinking", **thought, thoughtNumber=number)
        lengths.append(json.loads(result.details_json)["thoughtHistoryLength"])
    assert lengths == [1, 2]
