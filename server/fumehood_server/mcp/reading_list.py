"""What hosted MCP servers list and hold, as MCP has it, under names that say whose it is."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fumehood.v1 import mcp_service_pb2 as pb

from fumehood_server.mcp.content import Block, content_blocks
from fumehood_server.mcp.names import prompt_name, resource_uri
from fumehood_server.mcp.results import Json

if TYPE_CHECKING:
    from fumehood.v1.mcp_service_pb2_grpc import McpServiceAsyncStub


@dataclass(frozen=True, slots=True)
class Listing:
    """One method that lists."""

    method: str
    key: str
    """Of its result."""
    rpc: str
    """The method of McpService."""
    request: Callable[..., Any]
    entries: Callable[[str, Any], list[Json]]
    """Entries as MCP has them, of a plugin's page."""

    def call(self, stub: McpServiceAsyncStub) -> Callable[..., Any]:
        """What sends a request."""
        found: Callable[..., Any] = getattr(stub, self.rpc)
        return found


def _resources(plugin: str, page: pb.ListResourcesResponse) -> list[Json]:
    return [
        {
            "uri": resource_uri(plugin, each.uri),
            **_about(each),
            **({"size": each.size} if each.HasField("size") else {}),
        }
        for each in page.resources
    ]


def _templates(plugin: str, page: pb.ListResourceTemplatesResponse) -> list[Json]:
    return [{"uriTemplate": resource_uri(plugin, each.uri_template), **_about(each)} for each in page.templates]


def _prompts(plugin: str, page: pb.ListPromptsResponse) -> list[Json]:
    return [
        {
            "name": prompt_name(plugin, each.name),
            **_said(title=each.title, description=each.description),
            "arguments": [
                {
                    "name": argument.name,
                    **_said(title=argument.title, description=argument.description),
                    "required": argument.required,
                }
                for argument in each.arguments
            ],
        }
        for each in page.prompts
    ]


def _about(what: pb.McpResource | pb.McpResourceTemplate) -> Json:
    about: Json = {"name": what.name, **_said(title=what.title, description=what.description, mimeType=what.media_type)}
    if what.HasField("annotations"):
        given = what.annotations
        annotations: Json = _said(lastModified=given.last_modified)
        if given.audience:
            annotations["audience"] = list(given.audience)
        if given.HasField("priority"):
            annotations["priority"] = given.priority
        about["annotations"] = annotations
    return about


def _said(**texts: str) -> Json:
    """Those that are not empty."""
    return {key: text for key, text in texts.items() if text}


LISTINGS = {
    each.method: each
    for each in (
        Listing("resources/list", "resources", "ListResources", pb.ListResourcesRequest, _resources),
        Listing(
            "resources/templates/list",
            "resourceTemplates",
            "ListResourceTemplates",
            pb.ListResourceTemplatesRequest,
            _templates,
        ),
        Listing("prompts/list", "prompts", "ListPrompts", pb.ListPromptsRequest, _prompts),
    )
}


def resource_contents(plugin: str, contents: Iterable[pb.McpContents]) -> list[Json]:
    """What a resource holds."""
    return [
        {
            "uri": resource_uri(plugin, each.uri),
            **_said(mimeType=each.media_type),
            **(
                {"blob": base64.b64encode(each.blob).decode()}
                if each.WhichOneof("contents") == "blob"
                else {"text": each.text}
            ),
        }
        for each in contents
    ]


def prompt_messages(plugin: str, call_id: str, messages: Iterable[pb.McpPromptMessage]) -> list[Json]:
    """What a prompt says."""
    return [{"role": each.role, "content": _content(plugin, call_id, each)} for each in messages]


def _content(plugin: str, call_id: str, message: pb.McpPromptMessage) -> Block:
    (block,) = content_blocks([message.content], call_id, plugin)
    return block
