"""The official servers for Node.js, unmodified, at the levels that their annotations come to."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from fumehood.v1 import mcp_service_pb2 as mcp_pb
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.mcp_service_pb2_grpc import McpServiceStub

from tests.mcp.official_table import documented_levels, served_levels
from tests.mcp.real_servers import node_plugin
from tests.mcp.support import Caller, reason
from tests.orchestration.scripted import ScriptedModel, model_server, scripted_model
from tests.sidecar import Sidecar, running_sidecar

__all__ = ["model_server", "scripted_model"]

ALLOW = "permission = 'allow'"
READ = tool_pb2.SIDE_EFFECTS_READ


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
    unavailable = {name: tool.availability.reasons for name, tool in tools.items() if not tool.availability.available}
    assert {name: [each.code for each in reasons] for name, reasons in unavailable.items()} == {
        "every_simulate_research_query": ["task_required"]
    }
    for server, plugin, prefix in (
        ("filesystem", "files", ""),
        ("everything", "everything", "every_"),
        ("memory", "memory", ""),
        ("sequential-thinking", "thinking", ""),
    ):
        served = {name: tool for name, tool in tools.items() if name not in unavailable}
        assert served_levels(served, plugin, prefix) == documented_levels(server), server
    assert tools["every_gzip_file_as_resource"].permission == tool_pb2.PERMISSION_REQUIRE_APPROVAL
    assert tools["write_file"].permission == tool_pb2.PERMISSION_ALLOW, "the operator says so"


async def test_filesystem_reads_at_level_read_and_writes_at_level_write(caller: Caller, data: Path) -> None:
    assert await caller.text("read_text_file", path=str(data / "note.txt")) == "a note"
    await caller.text("write_file", path=str(data / "new.txt"), content="new")
    assert (data / "new.txt").read_text() == "new"
    assert await caller.text("read_text_file", path=str(data / "new.txt")) == "new"
    reading = await caller.call("read_text_file", path=str(data / "note.txt"))
    assert reading.sandbox.side_effects == READ


async def test_roots_of_filesystem_are_the_folder_that_is_granted(caller: Caller, data: Path) -> None:
    """What the server refuses by itself; what it lets through is held by its sandbox (test_filesystem_roots.py)."""
    assert await caller.text("list_allowed_directories") == f"Allowed directories:\n{data}"
    result = await caller.call("read_text_file", path="/etc/hostname")
    assert reason(result) == "tool_error"
    assert "path outside allowed directories" in result.error.message


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
    # Of steps that come at once, as on a busy machine, the first and the last are told for certain.
    steps = [each.progress for each in updates]
    assert (steps[0], steps[-1], steps) == (1, 4, sorted(set(steps)))
    assert {each.total for each in updates} == {4}


async def test_resources_and_prompts_of_everything_are_passed_through(sidecar: Sidecar) -> None:
    async with sidecar.channel() as channel:
        mcp = McpServiceStub(channel)
        listed = await mcp.ListResources(mcp_pb.ListResourcesRequest(plugin="everything"))
        assert not listed.reading.HasField("error"), listed.reading.error
        uri = listed.resources[0].uri
        got = await mcp.ReadResource(mcp_pb.ReadResourceRequest(plugin="everything", uri=uri))
        assert got.contents[0].uri == uri
        assert got.contents[0].text
        templates = await mcp.ListResourceTemplates(mcp_pb.ListResourceTemplatesRequest(plugin="everything"))
        template = next(each for each in templates.templates if "blob" in each.uri_template)
        filled = template.uri_template.split("{")[0] + "1"
        (blob,) = (await mcp.ReadResource(mcp_pb.ReadResourceRequest(plugin="everything", uri=filled))).contents
        assert blob.blob
        prompts = (await mcp.ListPrompts(mcp_pb.ListPromptsRequest(plugin="everything"))).prompts
        taking = next(each for each in prompts if any(argument.required for argument in each.arguments))
        arguments = [mcp_pb.McpPromptValue(name=each.name, value="Paris") for each in taking.arguments]
        request = mcp_pb.GetPromptRequest(plugin="everything", name=taking.name, arguments=arguments)
        filled_in = await mcp.GetPrompt(request)
        assert any("Paris" in each.content.text for each in filled_in.messages)
        without = await mcp.GetPrompt(mcp_pb.GetPromptRequest(plugin="everything", name=taking.name))
        assert without.reading.error.code == "TOOL_EXECUTION_FAILED"
        assert without.reading.sandbox.side_effects == READ


async def test_task_of_everything_is_refused_before_it_reaches_the_server(caller: Caller) -> None:
    refused = await caller.call("every_simulate_research_query", topic="fume hoods")
    assert refused.error.code == "TOOL_UNAVAILABLE", refused
    assert "taskSupport: required" in refused.error.details_json


async def test_resource_that_everything_makes_is_found_by_readings_in_one_process_alone(tmp_path: Path) -> None:
    grants = f'max_side_effects = "external"\n[plugin.tools.gzip_file_as_resource]\n{ALLOW}'
    apart, together = (node_plugin(tmp_path / name, "everything") for name in ("apart", "together"))
    both = [(apart, grants), (together, f'prefix = "one_"\none_process = true\n{grants}')]
    with running_sidecar(both) as sidecar:
        async with sidecar.channel() as channel:
            caller, mcp = Caller(channel), McpServiceStub(channel)
            for plugin, prefix in (("apart", ""), ("together", "one_")):
                made = await caller.call(f"{prefix}gzip_file_as_resource", name="hood.gz", data="data:,fumes")
                assert not made.is_error, made.error
                (link,) = made.content
                read = await mcp.ReadResource(mcp_pb.ReadResourceRequest(plugin=plugin, uri=link.resource_uri))
                assert read.reading.HasField("error") is (plugin == "apart"), (plugin, read)
                assert bool(read.contents) is (plugin == "together")


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


async def test_everything_asks_a_person_and_a_model(tmp_path: Path, scripted_model: ScriptedModel) -> None:
    scripted_model.says("A short poem.")
    allowed = "".join(
        f'[plugin.tools.{name}]\npermission = "allow"\n'
        for name in ("trigger_elicitation_request", "trigger_sampling_request")
    )
    grants = f'max_side_effects = "external"\nengine = "scripted"\n{allowed}'
    plugin = node_plugin(tmp_path / "everything", "everything")
    with running_sidecar([(plugin, grants)], more=scripted_model.engine_table()) as sidecar:
        async with sidecar.channel() as channel:
            caller = Caller(channel)
            sampling = (await caller.tools())["trigger_sampling_request"].definition
            assert sampling.side_effects == tool_pb2.SIDE_EFFECTS_EXTERNAL, "as docs/mcp.md says"
            asked = await caller.text("trigger_sampling_request", prompt="Write a poem.", maxTokens=50)
            assert "A short poem." in asked
            request = pb.CallToolRequest(tool="trigger_elicitation_request", takes_questions=True)
            texts: list[str] = []
            async for event in caller.stub.StreamTool(pb.StreamToolRequest(call=request)):
                if event.HasField("question"):
                    question = event.question
                    assert "firstLine" in json.loads(question.schema_json)["properties"]
                    answer = pb.AnswerQuestionRequest(
                        call_id=question.call_id,
                        question_id=question.question_id,
                        action=tool_pb2.ANSWER_ACTION_ACCEPT,
                        content_json=json.dumps({"name": "Ada", "check": True}),
                    )
                    await caller.stub.AnswerQuestion(answer)
                elif event.HasField("finished"):
                    assert not event.finished.is_error, event.finished.error
                    texts = [each.text for each in event.finished.content]
            assert any("Ada" in text for text in texts)
