"""What a hosted server shows and says of it, as gRPC callers, MCP clients and the record have it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from fumehood.v1 import content_pb2, tool_pb2
from fumehood.v1 import mcp_service_pb2 as mcp_pb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.mcp_service_pb2_grpc import McpServiceStub
from mcp import Client
from mcp.types import CallToolResult

from tests.cli.command import fumehood
from tests.mcp.real_servers import node_plugin
from tests.mcp.servers.showing import LINK, SHOWN, TIME
from tests.mcp.support import SERVERS, Caller, mcp_plugin, reason
from tests.mcp_door.support import MODES, error_of, http_client, request, url_of
from tests.sidecar import Sidecar, running_sidecar

LINK_TYPE = "application/vnd.modelcontextprotocol.resource-link+json"
DOOR = '[mcp]\nlisten = "127.0.0.1:0"\nallow_anonymous = true\n'
SECRET = "s3cret-value-of-show"  # noqa: S105 - of this test alone
BY_MODE = pytest.mark.parametrize("mode", MODES)


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    folder = tmp_path_factory.mktemp("content")
    (folder / "secret").write_text(SECRET)
    (folder / "secret").chmod(0o600)
    show = mcp_plugin(folder / "show", environment={"TOKEN": '{ secret = "token" }'})
    shutil.copy(SERVERS / "showing.py", show / "server.py")
    plugins = [
        (show, 'secrets = ["token"]'),
        (node_plugin(folder / "everything", "everything"), 'prefix = "e_"\nmax_side_effects = "read"'),
    ]
    with running_sidecar(plugins, more=f'{DOOR}[secrets.token]\nfile = "{folder / "secret"}"\n') as started:
        yield started


@pytest.fixture
async def caller(sidecar: Sidecar) -> AsyncIterator[Caller]:
    async with sidecar.channel() as channel:
        yield Caller(channel)


def door(sidecar: Sidecar, mode: str) -> AbstractAsyncContextManager[Client]:
    return http_client(url_of(sidecar), mode)


def said(block: content_pb2.Content) -> tuple[Any, ...]:
    """The annotations of a block, where it has any."""
    if not block.HasField("annotations"):
        return ()
    found = block.annotations
    return [*found.audience], found.priority if found.HasField("priority") else None, found.last_modified


def told(result: CallToolResult) -> list[dict[str, Any]]:
    """The blocks of a result as JSON."""
    blocks: list[dict[str, Any]] = result.model_dump(mode="json", by_alias=True, exclude_none=True)["content"]
    return blocks


async def test_callers_are_told_uris_media_types_and_annotations(caller: Caller) -> None:
    result = await caller.call("all")
    assert result.plugin == "show"
    assert [each.resource_uri for each in result.content] == ["", "", "", "show:text", "show:blob", "show:text"]
    assert [each.text_media_type for each in result.content] == ["", "", "", "text/markdown", "", ""]
    everything = (["user", "assistant"], 0.5, TIME)
    assert [said(each) for each in result.content] == [
        everything,
        (["user"], None, ""),
        ([], 1, ""),
        ([], 0, ""),
        (),
        everything,
    ]
    assert json.loads(result.content[5].blob.data) == LINK


@BY_MODE
async def test_mcp_clients_get_each_block_as_the_server_sent_it_with_uris_that_can_be_read(
    sidecar: Sidecar, mode: str
) -> None:
    async with door(sidecar, mode) as client:
        blocks = told(await client.call_tool("all", {}))
        sent = json.loads(json.dumps(SHOWN["all"]["content"]).replace('"show:', '"fumehood://show/show:'))
        sent[0]["annotations"]["audience"] = sent[5]["annotations"]["audience"] = ["user", "assistant"]
        assert blocks == sent
        (held,) = (await client.read_resource(blocks[5]["uri"])).contents
        assert (held.uri, getattr(held, "text", "")) == ("fumehood://show/show:text", "hello")


@BY_MODE
async def test_prompts_have_links_and_annotations_as_well(sidecar: Sidecar, mode: str) -> None:
    async with door(sidecar, mode) as client:
        found = await client.get_prompt("show/show", {})
        link, text = [each.content.model_dump(mode="json", by_alias=True, exclude_none=True) for each in found.messages]
        assert (link["type"], link["uri"], link["name"]) == ("resource_link", "fumehood://show/show:text", "text")
        assert (text["type"], text["resource"]["uri"]) == ("resource", "fumehood://show/show:text")
        assert text["annotations"]["lastModified"] == TIME


async def test_a_client_of_a_revision_without_links_gets_the_link_as_a_blob(sidecar: Sidecar) -> None:
    def call(revision: str) -> dict[str, Any]:
        start = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": start}
        _, headers, _ = request(url_of(sidecar), body=body)
        shown = {"Mcp_Session_Id": headers["mcp-session-id"], "MCP_Protocol_Version": revision}
        request(url_of(sidecar), body={"jsonrpc": "2.0", "method": "notifications/initialized"}, **shown)
        body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "all", "arguments": {}}}
        _, _, answer = request(url_of(sidecar), body=body, **shown)
        data = next((line[6:] for line in answer.splitlines() if line.startswith(b"data: {")), answer)
        block: dict[str, Any] = json.loads(data)["result"]["content"][5]
        return block

    assert (await asyncio.to_thread(call, "2025-06-18"))["type"] == "resource_link"
    old = await asyncio.to_thread(call, "2025-03-26")
    assert (old["type"], old["resource"]["mimeType"]) == ("resource", LINK_TYPE)


async def test_a_failure_keeps_what_its_server_shows_beside_it(caller: Caller) -> None:
    result = await caller.call("failed")
    assert (reason(result), result.error.message) == ("tool_error", "it went wrong")
    assert [(each.text, each.blob.data[:2], each.resource_uri) for each in result.content] == [
        ("it went wrong", b"", ""),
        ("", b"hi", "show:blob"),
        ("", b'{"', "show:text"),
        ("*hello*", b"", "show:text"),
    ]


@BY_MODE
async def test_mcp_clients_get_a_failures_content_beside_its_typed_error(sidecar: Sidecar, mode: str) -> None:
    async with door(sidecar, mode) as client:
        result = await client.call_tool("failed", {})
        assert error_of(result)["details"]["reason"] == "tool_error"
        assert [each["type"] for each in told(result)] == ["text", "resource", "resource_link", "resource"]


@pytest.mark.parametrize("tool", ["failed_broken", "failed_large", "failed_many"])
async def test_a_failure_stays_the_tools_own_whatever_it_shows(caller: Caller, tool: str) -> None:
    result = await caller.call(tool)
    assert reason(result) == "tool_error"
    assert result.error.message.startswith("it went wrong")
    assert [each.text for each in result.content] == [result.error.message]


async def test_what_is_out_of_bounds_is_left_out_and_the_content_stays(caller: Caller) -> None:
    result = await caller.call("wild")
    assert not result.is_error, result.error
    assert [each.text for each in result.content[:7]] == [*"abcdefg"]
    assert [said(each) for each in result.content] == [()] * 10
    assert [each.resource_uri for each in result.content] == [""] * 8 + ["show:wild", ""]
    assert result.content[6].text_media_type == "x" * 255
    assert (result.content[7].blob.media_type, result.content[8].blob.media_type) == (LINK_TYPE, LINK_TYPE)
    unknown = result.content[9].blob
    assert (json.loads(unknown.data), unknown.media_type) == ({"type": "hologram", "beams": 3}, "application/json")


@BY_MODE
async def test_what_is_out_of_bounds_does_not_cost_mcp_clients_the_rest(sidecar: Sidecar, mode: str) -> None:
    async with door(sidecar, mode) as client:
        blocks = told(await client.call_tool("wild", {}))
        assert [each["type"] for each in blocks[:7]] == ["text"] * 7
        assert (blocks[7]["type"], blocks[7]["resource"]["mimeType"]) == ("resource", LINK_TYPE)
        assert blocks[8] == {
            "type": "resource_link",
            "uri": "fumehood://show/show:wild",
            "name": "fumehood://show/show:wild",
            "icons": [{"src": "show:icon"}],
        }
        assert blocks[9]["resource"]["mimeType"] == "application/json"


async def test_the_largest_result_has_all_of_its_annotations(caller: Caller) -> None:
    result = await caller.call("most")
    assert not result.is_error, result.error
    assert {said(each)[2] for each in result.content} == {TIME}
    assert len(result.content) == 1024


async def test_uris_count_against_the_output_limit(caller: Caller) -> None:
    result = await caller.call("long_uris")
    assert result.error.code == "TOOL_RESOURCE_EXHAUSTED"
    assert json.loads(result.error.details_json)["limit"] == "output_bytes"


async def test_a_call_is_answered_from_its_record_with_all_that_was_said(caller: Caller) -> None:
    for tool in ("all", "failed"):
        call = pb.CallToolRequest(tool=tool, arguments_json="{}", call_id=f"twice-{tool}")
        first = (await caller.stub.CallTool(call)).result
        again = (await caller.stub.GetCall(pb.GetCallRequest(call_id=call.call_id, wait=True))).result
        assert first.content == again.content
        assert (first.plugin, again.plugin) == ("show", "show")
        assert any(each.resource_uri for each in again.content)
        assert any(each.HasField("annotations") for each in again.content)


async def test_secrets_are_taken_out_of_what_is_said(sidecar: Sidecar, caller: Caller) -> None:
    result = await caller.call("secret")
    (block,) = result.content
    assert block.text == "[secret token]"
    assert block.resource_uri == "show:[secret token]"
    assert block.annotations.last_modified == "[secret token]"
    kept = b"".join(each.read_bytes() for each in (sidecar.folder / ".fumehood").glob("journal.db*"))
    assert SECRET.encode() not in kept


async def test_the_command_names_what_it_does_not_print(sidecar: Sidecar) -> None:
    target = sidecar.target
    shown = await asyncio.to_thread(fumehood, "call", "all", address=target)
    assert "show:blob, image/png, 2 bytes" in shown.stderr
    printed = json.loads((await asyncio.to_thread(fumehood, "call", "all", "--json", address=target)).stdout)
    assert printed["content"][3] == {
        "type": "text",
        "text": "*hello*",
        "media_type": "text/markdown",
        "resource_uri": "show:text",
        "annotations": {"audience": [], "priority": 0, "last_modified": ""},
    }
    failed = await asyncio.to_thread(fumehood, "call", "failed", address=target)
    assert "show:blob, image/png, 2 bytes" in failed.stderr


@BY_MODE
async def test_everything_the_official_server_shows_reaches_mcp_clients(sidecar: Sidecar, mode: str) -> None:
    async with door(sidecar, mode) as client:
        image = told(await client.call_tool("e_get_tiny_image", {}))
        assert "image" in {each["type"] for each in image}
        links = [each for each in told(await client.call_tool("e_get_resource_links", {"count": 2})) if "uri" in each]
        assert {each["type"] for each in links} == {"resource_link"}
        assert all(each["uri"].startswith("fumehood://everything/demo://") for each in links)
        assert all(each["name"] and each["mimeType"] for each in links)
        (read,) = (await client.read_resource(links[0]["uri"])).contents
        assert read.uri == links[0]["uri"]
        for kind, key in (("Text", "text"), ("Blob", "blob")):
            given = {"resourceType": kind, "resourceId": 1}
            shown = told(await client.call_tool("e_get_resource_reference", given))
            (resource,) = (each["resource"] for each in shown if each["type"] == "resource")
            assert resource["uri"].startswith("fumehood://everything/demo://resource/dynamic/")
            assert resource[key]
            assert resource["mimeType"]
        annotated = told(
            await client.call_tool("e_get_annotated_message", {"messageType": "error", "includeImage": True})
        )
        assert annotated[0]["annotations"] == {"priority": 1, "audience": ["user", "assistant"]}
        assert annotated[1]["annotations"]["audience"] == ["user"]


async def test_everything_the_official_server_shows_reaches_callers(sidecar: Sidecar, caller: Caller) -> None:
    links = [each for each in (await caller.call("e_get_resource_links", count=2)).content if each.resource_uri]
    assert [each.blob.media_type for each in links] == [LINK_TYPE] * 2
    async with sidecar.channel() as channel:
        read = mcp_pb.ReadResourceRequest(plugin="everything", uri=links[0].resource_uri)
        got = await McpServiceStub(channel).ReadResource(read)
    assert not got.reading.HasField("error"), got.reading.error
    result = await caller.call("e_get_resource_reference", resourceType="Text", resourceId=1)
    (text,) = (each for each in result.content if each.resource_uri)
    assert text.text_media_type == "text/plain"
    annotated: tool_pb2.ToolResult = await caller.call("e_get_annotated_message", messageType="success")
    assert said(annotated.content[0]) == (["user"], pytest.approx(0.7), "")
