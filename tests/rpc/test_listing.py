from __future__ import annotations

import json

import grpc
import pytest
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_server.errors import RefusedError
from fumehood_server.rpc.paging import make_token, read_token
from hypothesis import given
from hypothesis import strategies as st

from tests.rpc.support import refused

NAMES = ["chatter", "die", "echo", "fail", "hang", "mutter", "shout", "wait", "write"]


def names(page: pb.ListToolsResponse) -> list[str]:
    return [tool.definition.name for tool in page.tools]


async def test_tools_that_can_run_are_listed_by_name(tools: ToolServiceStub) -> None:
    page = await tools.ListTools(pb.ListToolsRequest())
    assert names(page) == [name for name in NAMES if name != "write"]
    assert not page.next_page_token
    assert all(tool.availability.available for tool in page.tools)


async def test_tools_that_can_not_run_are_listed_on_request_with_the_reason(tools: ToolServiceStub) -> None:
    page = await tools.ListTools(pb.ListToolsRequest(include_unavailable=True))
    assert names(page) == NAMES
    write = page.tools[-1]
    assert not write.availability.available
    assert write.availability.reasons[0].code == "level_not_granted"
    assert write.permission == tool_pb2.PERMISSION_REQUIRE_APPROVAL


async def test_pages_join_to_the_whole_list(tools: ToolServiceStub) -> None:
    found: list[str] = []
    token = ""
    for _ in range(10):
        page = await tools.ListTools(pb.ListToolsRequest(page_size=4, page_token=token, include_unavailable=True))
        assert len(page.tools) <= 4
        found += names(page)
        token = page.next_page_token
        if not token:
            break
    assert found == NAMES


async def test_the_plugin_filter_holds(tools: ToolServiceStub) -> None:
    assert names(await tools.ListTools(pb.ListToolsRequest(plugin="speech")))
    assert not names(await tools.ListTools(pb.ListToolsRequest(plugin="other")))


async def test_wrong_pages_are_refused(tools: ToolServiceStub) -> None:
    token = (await tools.ListTools(pb.ListToolsRequest(page_size=1))).next_page_token
    for request, reason in (
        (pb.ListToolsRequest(page_size=-1), "REQUEST_INVALID"),
        (pb.ListToolsRequest(page_token="made up"), "PAGE_TOKEN_INVALID"),  # noqa: S106 - no secret
        (pb.ListToolsRequest(page_token=token[:-1]), "PAGE_TOKEN_INVALID"),
        (pb.ListToolsRequest(page_token=token, include_unavailable=True), "PAGE_TOKEN_INVALID"),
    ):
        assert await refused(tools.ListTools(request)) == (grpc.StatusCode.INVALID_ARGUMENT, reason)


async def test_one_tool_has_its_definition(tools: ToolServiceStub) -> None:
    tool = (await tools.GetTool(pb.GetToolRequest(name="echo"))).tool
    assert tool.plugin == "speech"
    assert tool.definition.idempotent
    assert tool.definition.side_effects == tool_pb2.SIDE_EFFECTS_NONE
    assert '"text"' in tool.definition.input_schema_json
    assert tool.definition_digest.startswith("sha256:")


async def test_an_unknown_tool_is_not_found(tools: ToolServiceStub) -> None:
    assert await refused(tools.GetTool(pb.GetToolRequest(name="no"))) == (grpc.StatusCode.NOT_FOUND, "TOOL_NOT_FOUND")
    assert await refused(tools.GetTool(pb.GetToolRequest())) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID")


async def test_availability_is_answered_in_the_order_asked(tools: ToolServiceStub) -> None:
    answer = await tools.CheckAvailability(pb.CheckAvailabilityRequest(names=["write", "no", "echo", "write"]))
    assert [(each.name, each.availability.available) for each in answer.tools] == [
        ("write", False),
        ("no", False),
        ("echo", True),
        ("write", False),
    ]
    assert answer.tools[1].availability.reasons[0].code == "not_found"
    assert len((await tools.CheckAvailability(pb.CheckAvailabilityRequest())).tools) == len(NAMES)


async def test_too_many_names_are_refused(tools: ToolServiceStub) -> None:
    request = pb.CheckAvailabilityRequest(names=["echo"] * 1001)
    assert await refused(tools.CheckAvailability(request)) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID")


@given(st.text(max_size=100))
def test_no_text_but_ours_is_a_page_token(text: str) -> None:
    if text:
        with pytest.raises(RefusedError):
            read_token(text, ("a", "b"))


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=64))
def test_a_token_remembers_its_place(name: str) -> None:
    assert read_token(make_token(name, ("p", "all")), ("p", "all")) == name


FORMATS = {
    pb.TOOL_FORMAT_OPENAI: lambda name, text, schema: {
        "type": "function",
        "function": {"name": name, "description": text, "parameters": schema},
    },
    pb.TOOL_FORMAT_OPENAI_RESPONSES: lambda name, text, schema: {
        "type": "function",
        "name": name,
        "description": text,
        "parameters": schema,
        "strict": False,
    },
    pb.TOOL_FORMAT_ANTHROPIC: lambda name, text, schema: {"name": name, "description": text, "input_schema": schema},
    pb.TOOL_FORMAT_GEMINI: lambda name, text, schema: {
        "name": name,
        "description": text,
        "parametersJsonSchema": schema,
    },
}


@pytest.mark.parametrize("tool_format", FORMATS, ids=pb.ToolFormat.Name)
async def test_definitions_come_as_a_models_api_takes_them(
    tools: ToolServiceStub, tool_format: pb.ToolFormat.ValueType
) -> None:
    page = await tools.ListTools(pb.ListToolsRequest(format=tool_format))
    assert not page.tools
    definitions = [each.definition for each in (await tools.ListTools(pb.ListToolsRequest())).tools]
    assert json.loads(page.tools_json) == [
        FORMATS[tool_format](each.name, each.description, json.loads(each.input_schema_json)) for each in definitions
    ]
    again = await tools.ListTools(pb.ListToolsRequest(format=tool_format))
    assert again.tools_json == page.tools_json


async def test_definitions_for_mcp_are_its_tools_with_hints_by_level(tools: ToolServiceStub) -> None:
    from mcp.types import Tool  # noqa: PLC0415 - takes a second, in each process that collects tests

    request = pb.ListToolsRequest(format=pb.TOOL_FORMAT_MCP, include_unavailable=True, names=["echo", "write"])
    echo, write = json.loads((await tools.ListTools(request)).tools_json)
    for each in (echo, write):
        Tool.model_validate(each, strict=True)
    assert echo["annotations"] == {
        "readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False,
    }  # fmt: skip
    assert write["annotations"] == {
        "readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": False,
    }  # fmt: skip
    assert echo["inputSchema"]["type"] == "object"


async def test_formatted_pages_join_to_the_whole_list(tools: ToolServiceStub) -> None:
    found: list[str] = []
    token = ""
    for _ in range(10):
        request = pb.ListToolsRequest(page_size=4, page_token=token, format=pb.TOOL_FORMAT_ANTHROPIC)
        page = await tools.ListTools(request)
        found += [each["name"] for each in json.loads(page.tools_json)]
        token = page.next_page_token
        if not token:
            break
    assert found == [name for name in NAMES if name != "write"]


async def test_tools_are_listed_by_allowed_names_and_level(tools: ToolServiceStub) -> None:
    asked = ["write", "echo", "no_such_tool"]
    assert names(await tools.ListTools(pb.ListToolsRequest(names=asked))) == ["echo"]
    everything = pb.ListToolsRequest(names=asked, include_unavailable=True)
    assert names(await tools.ListTools(everything)) == ["echo", "write"]
    everything.max_side_effects = tool_pb2.SIDE_EFFECTS_READ
    assert names(await tools.ListTools(everything)) == ["echo"]
    everything.max_side_effects = tool_pb2.SIDE_EFFECTS_EXTERNAL
    assert names(await tools.ListTools(everything)) == ["echo", "write"]


async def test_a_page_token_holds_for_its_filters_alone(tools: ToolServiceStub) -> None:
    some = pb.ListToolsRequest(page_size=1, names=["echo", "hang"])
    some.page_token = (await tools.ListTools(some)).next_page_token
    assert names(await tools.ListTools(some)) == ["hang"]
    some.names.append("wait")
    assert await refused(tools.ListTools(some)) == (grpc.StatusCode.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID")


@pytest.mark.parametrize(
    "request_",
    [
        pb.ListToolsRequest(format=99),  # type: ignore[arg-type] # of a later version
        pb.ListToolsRequest(max_side_effects=99),  # type: ignore[arg-type] # likewise
        pb.ListToolsRequest(names=["x"] * 1001),
    ],
)
async def test_a_filter_or_format_that_is_not_known_is_refused(
    tools: ToolServiceStub, request_: pb.ListToolsRequest
) -> None:
    assert await refused(tools.ListTools(request_)) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID")
