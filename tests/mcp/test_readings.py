"""Resources and prompts of a hosted server, through McpService: what is passed through, and what is held back."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import journal_service_pb2 as journal_pb
from fumehood.v1 import mcp_service_pb2 as pb
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as tools_pb
from fumehood.v1.journal_service_pb2_grpc import JournalServiceStub
from fumehood.v1.mcp_service_pb2_grpc import McpServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.mcp.reach import as_plain_user, open_folders
from tests.mcp.support import SERVERS, Caller, mcp_plugin
from tests.mcp.web import web_server
from tests.sidecar import Sidecar, running_sidecar

BOTH = pytest.mark.parametrize("plugin", ["old", "new"], ids=["2025-11-25", "2026-07-28"])
BOUND_S = 60.0


def shelf(folder: Path, *, environment: dict[str, object] | None = None, more: str = "") -> Path:
    """A plugin of the server with resources and prompts."""
    mcp_plugin(folder, environment=environment, more=more)
    shutil.copy(SERVERS / "shelf.py", folder / "server.py")
    return folder


@dataclass(frozen=True)
class House:
    sidecar: Sidecar
    readable: Path
    writable: Path


NO_TEMPLATES = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    said = {"error": {"code": -32601, "message": "Method not found"}}
    if asked["method"] == "initialize":
        said = {"result": {"protocolVersion": "2025-11-25", "capabilities": {"resources": {}}}}
    elif asked["method"] == "resources/list":
        said = {"result": {"resources": [{"uri": "note:1", "name": "one"}]}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("shelf")
    readable, writable = folder / "readable", folder / "writable"
    for each in (readable, writable):
        each.mkdir()
        each.chmod(0o777)  # a root-started sidecar gives plugins ids of their own
        (each / "note").write_text("a note")
        (each / "note").chmod(0o666)
    grants = f'max_side_effects = "external"\nread = ["{readable}"]\nwrite = ["{writable}"]'
    plugins = [
        (shelf(folder / "old"), f'prefix = "old_"\n{grants}'),
        (shelf(folder / "new", environment={"STATELESS": '"1"'}), f'prefix = "new_"\n{grants}'),
        (shelf(folder / "bare", environment={"BARE": '"1"'}), f'prefix = "bare_"\n{grants}'),
        (shelf(folder / "shut"), 'prefix = "shut_"\nmax_side_effects = "none"'),
    ]
    more = '[[policy.rule]]\nname = "no-secrets"\ntools = ["bare/resources/*"]\npermission = "deny"\n'
    with running_sidecar(plugins, more=more) as sidecar:
        yield House(sidecar, readable, writable)


@pytest.fixture
async def channel(house: House) -> AsyncIterator[grpc.aio.Channel]:
    async with house.sidecar.channel() as channel:
        yield channel


@pytest.fixture
def mcp(channel: grpc.aio.Channel) -> McpServiceStub:
    return McpServiceStub(channel)


async def read(mcp: McpServiceStub, plugin: str, uri: str, **options: Any) -> pb.ReadResourceResponse:
    request = pb.ReadResourceRequest(plugin=plugin, uri=uri, options=pb.McpReadingOptions(**options))
    return await mcp.ReadResource(request, timeout=BOUND_S)


def failed(reading: pb.McpReading) -> tuple[str, str]:
    """Code and reason."""
    details = json.loads(reading.error.details_json or "{}")
    return reading.error.code, details.get("reason", "")


@BOTH
async def test_resources_are_listed_in_the_servers_pages_and_what_is_none_is_left_out(
    mcp: McpServiceStub, plugin: str
) -> None:
    first = await mcp.ListResources(pb.ListResourcesRequest(plugin=plugin), timeout=BOUND_S)
    assert not first.reading.HasField("error"), first.reading.error
    assert [each.uri for each in first.resources] == ["shelf:text", "shelf:blob"]
    assert (first.left_out, first.next_page_token) == (2, "4")
    text, blob = first.resources
    assert (text.name, text.title, text.description, text.media_type, text.size) == (
        *("text", "A text", "Says hello.", "text/plain", 5),
    )
    assert (list(text.annotations.audience), text.annotations.priority) == (["user"], 0.5)
    assert text.annotations.last_modified == "2026-01-01T00:00:00Z"
    assert not blob.HasField("size")
    assert not blob.HasField("annotations")
    last = await mcp.ListResources(pb.ListResourcesRequest(plugin=plugin, page_token="4"), timeout=BOUND_S)  # noqa: S106
    assert [(each.uri, len(each.name), len(each.description)) for each in last.resources] == [("shelf:loud", 512, 8192)]
    assert (last.left_out, last.next_page_token) == (1, "")


@BOTH
async def test_templates_and_prompts_are_listed(mcp: McpServiceStub, plugin: str) -> None:
    templates = await mcp.ListResourceTemplates(pb.ListResourceTemplatesRequest(plugin=plugin), timeout=BOUND_S)
    assert [(each.uri_template, each.name) for each in templates.templates] == [("shelf:file?{path}", "file")]
    prompts = await mcp.ListPrompts(pb.ListPromptsRequest(plugin=plugin), timeout=BOUND_S)
    assert prompts.left_out == 1
    (prompt,) = prompts.prompts
    assert (prompt.name, prompt.description) == ("greet", "Greets.")
    assert [(each.name, each.description, each.required) for each in prompt.arguments] == [
        ("whom", "Whom to greet.", True)
    ]


@BOTH
async def test_resource_is_read_with_text_and_bytes(mcp: McpServiceStub, plugin: str) -> None:
    text = await read(mcp, plugin, "shelf:text")
    assert [(each.uri, each.media_type, each.text) for each in text.contents] == [("shelf:text", "text/plain", "hello")]
    blob, empty = (await read(mcp, plugin, "shelf:blob")).contents
    assert (blob.WhichOneof("contents"), blob.blob, blob.media_type) == ("blob", b"\x00\x01", "")
    assert (empty.WhichOneof("contents"), empty.text, empty.uri) == ("text", "", "shelf:blob#2")
    nothing = await read(mcp, plugin, "shelf:none")
    assert not nothing.contents
    assert not nothing.reading.HasField("error")


@BOTH
async def test_prompt_is_filled_in_with_each_type_of_content(mcp: McpServiceStub, plugin: str) -> None:
    request = pb.GetPromptRequest(plugin=plugin, name="greet", arguments=[pb.McpPromptValue(name="whom", value="Ünï")])
    got = await mcp.GetPrompt(request, timeout=BOUND_S)
    assert got.description == "Greets."
    text, image, resource, link = got.messages
    assert (text.role, text.content.text) == ("user", "Greet Ünï.")
    assert (image.role, image.content.blob.data, image.content.blob.media_type) == ("assistant", b"hi", "image/png")
    assert (resource.content.text, resource.resource_uri) == ("hello", "shelf:text")
    assert resource.resource_media_type == "text/plain"
    assert json.loads(link.content.blob.data)["uri"] == "shelf:blob"


async def test_server_that_reads_writes_and_dials_is_held_to_the_level_read(house: House, mcp: McpServiceStub) -> None:
    """Each target is there for whoever is in no sandbox."""
    for granted in (house.readable, house.writable):
        got = await read(mcp, "old", f"shelf:file?{granted}/note")
        assert [each.text for each in got.contents] == ["a note"]
        assert got.reading.sandbox.side_effects == tool_pb2.SIDE_EFFECTS_READ
    with open_folders("home", "common") as (home, common), web_server() as port:
        key, known, own = home / ".ssh" / "id_rsa", house.writable / "note", common / "new"
        key.parent.mkdir()
        key.write_text("a key")
        with as_plain_user():
            assert key.read_text() == "a key"
            own.write_text("by anybody")
            socket.create_connection(("127.0.0.1", port), 2).close()
        for uri, problem in (
            (f"file?{key}", "No such file or directory"),
            (f"write?{own}", "No such file or directory"),
            (f"write?{known}", "OSError|PermissionError"),
            (f"write?{house.writable}/new", "OSError|PermissionError"),
            (f"dial?127.0.0.1:{port}", "OSError|PermissionError|ConnectionRefusedError"),
        ):
            reading = (await read(mcp, "old", f"shelf:{uri}")).reading
            assert failed(reading) == ("TOOL_EXECUTION_FAILED", "mcp_error"), uri
            assert re.search(problem, reading.error.message), reading.error
        assert own.read_text() == "by anybody"
    assert known.read_text() == "a note"
    assert not (house.writable / "new").exists()


@BOTH
@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("nothing", ("TOOL_EXECUTION_FAILED", "mcp_error")),
        ("many", ("TOOL_EXECUTION_FAILED", "invalid_result")),
        ("malformed", ("TOOL_EXECUTION_FAILED", "invalid_result")),
        ("without", ("TOOL_EXECUTION_FAILED", "invalid_result")),
        ("huge", ("TOOL_RESOURCE_EXHAUSTED", "")),
        ("die", ("TOOL_UNAVAILABLE", "")),
    ],
)
async def test_hostile_answer_is_a_typed_error_and_the_next_reading_is_served(
    mcp: McpServiceStub, plugin: str, uri: str, expected: tuple[str, str]
) -> None:
    answer = await read(mcp, plugin, f"shelf:{uri}")
    assert failed(answer.reading) == expected, answer.reading.error
    assert not answer.contents
    assert [each.text for each in (await read(mcp, plugin, "shelf:text")).contents] == ["hello"]


@pytest.mark.parametrize(
    ("token", "problem"), [("again", "the list doesn't end"), ("odd", "its `resultType` is odd")], ids=["again", "odd"]
)
async def test_page_that_names_its_own_cursor_or_an_unknown_type_is_refused(
    mcp: McpServiceStub, token: str, problem: str
) -> None:
    page = await mcp.ListResources(pb.ListResourcesRequest(plugin="old", page_token=token), timeout=BOUND_S)
    assert failed(page.reading) == ("TOOL_EXECUTION_FAILED", "invalid_result")
    assert problem in page.reading.error.message


async def test_page_of_too_many_and_a_message_of_no_role_are_refused(mcp: McpServiceStub) -> None:
    page = await mcp.ListResources(pb.ListResourcesRequest(plugin="old", page_token="flood"), timeout=BOUND_S)  # noqa: S106
    assert failed(page.reading) == ("TOOL_EXECUTION_FAILED", "invalid_result")
    wrong = await mcp.GetPrompt(pb.GetPromptRequest(plugin="old", name="wrong_role"), timeout=BOUND_S)
    assert failed(wrong.reading) == ("TOOL_EXECUTION_FAILED", "invalid_result")
    assert not wrong.messages


async def test_server_that_asks_for_roots_gets_the_grants_and_one_that_asks_for_a_model_is_refused(
    house: House, mcp: McpServiceStub
) -> None:
    roots = await read(mcp, "new", "shelf:roots")
    assert str(house.readable) in roots.contents[0].text
    assert failed((await read(mcp, "new", "shelf:model")).reading)[1] == "sampling_refused"


async def test_reading_ends_with_its_time(mcp: McpServiceStub) -> None:
    request = pb.ReadResourceRequest(plugin="old", uri="shelf:silence")
    request.options.timeout.FromMilliseconds(500)
    assert failed((await mcp.ReadResource(request, timeout=BOUND_S)).reading)[0] == "TOOL_TIMEOUT"


async def test_server_without_resources_lists_none_and_has_none_to_read(mcp: McpServiceStub) -> None:
    listed = await mcp.ListPrompts(pb.ListPromptsRequest(plugin="bare"), timeout=BOUND_S)
    assert not listed.reading.HasField("error")
    assert not listed.prompts
    got = await mcp.GetPrompt(pb.GetPromptRequest(plugin="bare", name="greet"), timeout=BOUND_S)
    assert failed(got.reading) == ("TOOL_EXECUTION_FAILED", "not_offered")


async def test_a_server_that_knows_no_templates_has_none(tmp_path: Path) -> None:
    mcp_plugin(tmp_path / "plain")
    (tmp_path / "plain" / "server.py").write_text(NO_TEMPLATES)
    with running_sidecar([(tmp_path / "plain", 'max_side_effects = "read"')]) as sidecar:
        async with sidecar.channel() as channel:
            mcp = McpServiceStub(channel)
            listed = await mcp.ListResources(pb.ListResourcesRequest(plugin="plain"), timeout=BOUND_S)
            assert [each.uri for each in listed.resources] == ["note:1"]
            request = pb.ListResourceTemplatesRequest(plugin="plain")
            templates = await mcp.ListResourceTemplates(request, timeout=BOUND_S)
            assert not templates.reading.HasField("error"), templates
            assert not templates.templates
            assert failed((await read(mcp, "plain", "note:1")).reading)[0] == "TOOL_EXECUTION_FAILED"


async def test_rules_levels_and_names_hold_for_readings(mcp: McpServiceStub) -> None:
    assert failed((await read(mcp, "bare", "shelf:text")).reading) == ("TOOL_DENIED", "denied")
    shut = (await read(mcp, "shut", "shelf:text")).reading
    assert shut.error.code == "TOOL_UNAVAILABLE"
    assert "level_not_granted" in shut.error.details_json
    assert failed((await read(mcp, "nobody", "shelf:text")).reading)[0] == "TOOL_NOT_FOUND"
    twice = [pb.McpPromptValue(name="whom", value=each) for each in "ab"]
    for asked in (
        mcp.ReadResource(pb.ReadResourceRequest(uri="shelf:text"), timeout=BOUND_S),
        mcp.ReadResource(pb.ReadResourceRequest(plugin="old"), timeout=BOUND_S),
        mcp.GetPrompt(pb.GetPromptRequest(plugin="old", name="greet", arguments=twice), timeout=BOUND_S),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await asked
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_hosted_servers_are_listed_and_their_readings_are_no_listed_tools(
    channel: grpc.aio.Channel, mcp: McpServiceStub
) -> None:
    servers = (await mcp.ListMcpServers(pb.ListMcpServersRequest(), timeout=BOUND_S)).servers
    assert [(each.plugin, each.availability.available) for each in servers] == [
        *(("bare", True), ("new", True), ("old", True), ("shut", False)),
    ]
    assert {each.side_effects for each in servers[0].methods} == {tool_pb2.SIDE_EFFECTS_READ}
    assert [each.method for each in servers[0].methods] == [
        *("resources/list", "resources/templates/list", "resources/read", "prompts/list", "prompts/get"),
    ]
    listed = await ToolServiceStub(channel).ListTools(tools_pb.ListToolsRequest(include_unavailable=True))
    assert [each.definition.name for each in listed.tools] == ["bare_count", "new_count", "old_count", "shut_count"]


async def test_reading_is_recorded_as_a_call_is(channel: grpc.aio.Channel, mcp: McpServiceStub) -> None:
    answer = await read(mcp, "old", "shelf:text", call_id="a-reading")
    assert answer.reading.call_id == "a-reading"
    again = await read(mcp, "old", "shelf:text", call_id="a-reading")
    assert [each.text for each in again.contents] == ["hello"]
    got = await ToolServiceStub(channel).GetCall(tools_pb.GetCallRequest(call_id="a-reading"), timeout=BOUND_S)
    assert (got.tool, got.result.content[0].text) == ("old/resources/read", "hello")
    journal: Any = JournalServiceStub(channel)
    request = journal_pb.ListEventsRequest(filter=journal_pb.EventFilter(call_id="a-reading"), include_payloads=True)
    events = (await journal.ListEvents(request, timeout=BOUND_S)).events
    assert [each.type for each in events] == ["execute_start", "execute_end"]
    assert "shelf:text" in str(events[0])


async def test_operator_sets_permission_and_level_of_a_reading(tmp_path: Path) -> None:
    grants = '[plugin.tools."resources/read"]\npermission = "deny"\n[plugin.tools."prompts/get"]\nside_effects = "none"'
    with running_sidecar([(shelf(tmp_path / "old"), grants)]) as sidecar:
        async with sidecar.channel() as channel:
            mcp = McpServiceStub(channel)
            assert failed((await read(mcp, "old", "shelf:text")).reading) == ("TOOL_DENIED", "denied")
            got = await mcp.GetPrompt(pb.GetPromptRequest(plugin="old", name="greet"), timeout=BOUND_S)
            assert got.reading.sandbox.side_effects == tool_pb2.SIDE_EFFECTS_NONE
            listed = await mcp.ListResources(pb.ListResourcesRequest(plugin="old"), timeout=BOUND_S)
            assert listed.reading.sandbox.side_effects == tool_pb2.SIDE_EFFECTS_READ


async def test_readings_and_tools_share_the_process_of_their_level(mcp: McpServiceStub, channel: Any) -> None:
    await read(mcp, "new", "shelf:text")
    result = await Caller(channel).call("new_count")
    reading = (await read(mcp, "new", "shelf:text")).reading
    assert result.sandbox.policy_digest == reading.sandbox.policy_digest
