"""`fumehood.v1.McpService`: resources and prompts of hosted MCP servers, as calls of their reserved tools."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import orjson
from fumehood.v1 import mcp_service_pb2 as pb
from fumehood.v1 import tool_service_pb2 as tool_pb

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.mcp_reading import McpReading
from fumehood_server.model.plugin import Kind
from fumehood_server.model.side_effects import SIDE_EFFECTS
from fumehood_server.plugins.manifest_file import valid_plugin_name
from fumehood_server.rpc import mcp_messages
from fumehood_server.rpc.authentication import asking
from fumehood_server.rpc.reading import Service
from fumehood_server.rpc.tool_messages import availability_message
from fumehood_server.rpc.unary_calls import call_outcome, start_call

if TYPE_CHECKING:
    from fumehood_server.model.call import CallOutcome
    from fumehood_server.rpc.server_context import ServerContext

SERVICE = pb.DESCRIPTOR.services_by_name["McpService"].full_name

MAX_ARGUMENTS = 64
"""Of a prompt."""

INLINE_CHARS = 16 * 1024
"""A longer page is turned into a message in a thread: 500 prompts of 64 arguments took the loop for 200 ms."""

_Request = TypeVar("_Request")
_Context = grpc.aio.ServicerContext[_Request, bytes]
_Reads = (
    pb.ListResourcesRequest
    | pb.ListResourceTemplatesRequest
    | pb.ReadResourceRequest
    | pb.ListPromptsRequest
    | pb.GetPromptRequest
)


class McpService:
    """The methods. Each returns a serialised message, or raises RefusedError."""

    def __init__(self, server: ServerContext) -> None:
        """Serve this server."""
        self._server = server
        self._large = asyncio.Lock()

    def service(self) -> Service:
        """The service, with what its requests may hold."""
        reader = self._server.reader
        methods = {
            "ListMcpServers": reader.unary(self.list_mcp_servers, pb.ListMcpServersRequest),
            "ListResources": reader.unary(self.list_resources, pb.ListResourcesRequest),
            "ListResourceTemplates": reader.unary(self.list_resource_templates, pb.ListResourceTemplatesRequest),
            "ReadResource": reader.unary(self.read_resource, pb.ReadResourceRequest),
            "ListPrompts": reader.unary(self.list_prompts, pb.ListPromptsRequest),
            "GetPrompt": reader.unary(self.get_prompt, pb.GetPromptRequest),
        }
        return Service(SERVICE, methods)

    async def list_mcp_servers(
        self, _request: pb.ListMcpServersRequest, _context: _Context[pb.ListMcpServersRequest]
    ) -> bytes:
        """See mcp_service.proto, as for every method."""
        server, caller = self._server, asking().admitted
        await server.catalog.look_for_programs()
        response, scan = pb.ListMcpServersResponse(), server.catalog.scan()
        for plugin in sorted(server.catalog.plugins, key=lambda each: each.name):
            if plugin.kind is not Kind.MCP:
                continue
            reads = [each for each in plugin.reads if server.callers.may_call(caller, each.name)]
            if reads:
                response.servers.add(
                    plugin=plugin.name,
                    methods=[
                        pb.McpMethod(
                            method=each.definition.name, side_effects=SIDE_EFFECTS[each.definition.side_effects]
                        )
                        for each in reads
                    ],
                    availability=availability_message(server.catalog.availability(reads[0], scan)),
                )
        return response.SerializeToString()

    async def list_resources(
        self, request: pb.ListResourcesRequest, context: _Context[pb.ListResourcesRequest]
    ) -> bytes:
        """A page of resources."""
        outcome = await self._read("ListResources", McpReading.LIST_RESOURCES, request, _page(request), context)
        return await self._response(outcome, pb.ListResourcesResponse(), mcp_messages.fill_resources)

    async def list_resource_templates(
        self, request: pb.ListResourceTemplatesRequest, context: _Context[pb.ListResourceTemplatesRequest]
    ) -> bytes:
        """A page of templates."""
        outcome = await self._read("ListResourceTemplates", McpReading.LIST_TEMPLATES, request, _page(request), context)
        return await self._response(outcome, pb.ListResourceTemplatesResponse(), mcp_messages.fill_templates)

    async def read_resource(self, request: pb.ReadResourceRequest, context: _Context[pb.ReadResourceRequest]) -> bytes:
        """One resource."""
        outcome = await self._read(
            "ReadResource", McpReading.READ_RESOURCE, request, {"uri": _required("uri", request.uri)}, context
        )
        return await self._response(outcome, pb.ReadResourceResponse(), mcp_messages.fill_contents)

    async def list_prompts(self, request: pb.ListPromptsRequest, context: _Context[pb.ListPromptsRequest]) -> bytes:
        """A page of prompts."""
        outcome = await self._read("ListPrompts", McpReading.LIST_PROMPTS, request, _page(request), context)
        return await self._response(outcome, pb.ListPromptsResponse(), mcp_messages.fill_prompts)

    async def get_prompt(self, request: pb.GetPromptRequest, context: _Context[pb.GetPromptRequest]) -> bytes:
        """One prompt."""
        if len(request.arguments) > MAX_ARGUMENTS:
            raise _invalid(f"arguments has more than {MAX_ARGUMENTS} entries")
        values = {each.name: each.value for each in request.arguments}
        if len(values) < len(request.arguments):
            raise _invalid("an argument is named twice")
        arguments = {"name": _required("name", request.name), "arguments": values}
        outcome = await self._read("GetPrompt", McpReading.GET_PROMPT, request, arguments, context)
        return await self._response(outcome, pb.GetPromptResponse(), mcp_messages.fill_prompt)

    async def _response(
        self, outcome: CallOutcome, response: mcp_messages.Response, fill: mcp_messages.Fill[mcp_messages.Response]
    ) -> bytes:
        error = outcome.error
        if error is None and len(outcome.details_json) <= INLINE_CHARS:
            error = mcp_messages.filled(outcome, response, fill)
        elif error is None:
            async with self._large:  # one at a time: several threads would take the interpreter in turns
                error = await asyncio.to_thread(mcp_messages.filled, outcome, response, fill)
        return mcp_messages.finished(outcome, response, error, self._server.results)

    async def _read(
        self,
        method: str,
        reading: McpReading,
        request: _Reads,
        arguments: dict[str, Any],
        context: grpc.aio.ServicerContext[Any, bytes],
    ) -> CallOutcome:
        """Call the plugin's reserved tool.

        Raises:
            RefusedError: the request is wrong in itself, or the call isn't admitted.
        """
        options = request.options
        if not valid_plugin_name(request.plugin):
            raise _invalid("plugin is required, and is the name of a plugin")
        call_request = tool_pb.CallToolRequest(
            tool=reading.tool(request.plugin),
            arguments_json=orjson.dumps(arguments).decode(),
            call_id=options.call_id,
            return_if_approval_required=options.return_if_approval_required,
        )
        if options.HasField("context"):
            call_request.context.CopyFrom(options.context)
        if options.HasField("timeout"):
            call_request.timeout.CopyFrom(options.timeout)
        full = f"{SERVICE}/{method}"
        return await call_outcome(self._server, full, start_call(self._server, full, call_request, context))


def _page(
    request: pb.ListResourcesRequest | pb.ListResourceTemplatesRequest | pb.ListPromptsRequest,
) -> dict[str, Any]:
    return {"cursor": request.page_token} if request.page_token else {}


def _required(name: str, value: str) -> str:
    if not value:
        raise _invalid(f"{name} is required")
    return value


def _invalid(message: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.REQUEST_INVALID, message))
