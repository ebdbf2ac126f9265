"""Lists tools, and looks up whether they could run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.tool import Availability, Reason
from fumehood_server.rpc.paging import MAX_PAGE_BYTES, make_token, page_size, read_token
from fumehood_server.rpc.tools import availability_message

if TYPE_CHECKING:
    from fumehood_server.rpc.server_context import ServerContext

MAX_NAMES = 1000


def list_tools(server: ServerContext, request: pb.ListToolsRequest) -> pb.ListToolsResponse:
    """A page.

    Raises:
        RefusedError: the page's size or token is wrong.
    """
    size = page_size(request.page_size)
    filters = (request.plugin[:128], "all" if request.include_unavailable else "available")
    after = read_token(request.page_token, filters)
    catalog, writer = server.catalog, server.tools
    scan = catalog.scan()
    page: list[tool_pb2.Tool] = []
    page_bytes, last, token = 0, "", ""
    for tool in catalog.tools:
        name = tool.name
        if name <= after or (request.plugin and tool.plugin != request.plugin):
            continue
        availability = catalog.availability(tool, scan)
        if availability.reasons and not request.include_unavailable:
            continue
        message = writer.tool(tool, availability)
        message_bytes = message.ByteSize()
        if len(page) == size or (page and page_bytes + message_bytes > MAX_PAGE_BYTES):
            token = make_token(last, filters)
            break
        page.append(message)
        page_bytes += message_bytes
        last = name
    return pb.ListToolsResponse(tools=page, next_page_token=token)


def get_tool(server: ServerContext, request: pb.GetToolRequest) -> pb.GetToolResponse:
    """One tool.

    Raises:
        RefusedError: it isn't named, or there is none of this name.
    """
    if not request.name:
        raise RefusedError(Refusal(RefusalReason.REQUEST_INVALID, "name is required"))
    scan = server.catalog.scan()
    tool = server.catalog.find(request.name)
    if tool is None:
        raise RefusedError(Refusal(RefusalReason.TOOL_NOT_FOUND, f'there is no tool "{request.name[:64]}"'))
    return pb.GetToolResponse(tool=server.tools.tool(tool, server.catalog.availability(tool, scan)))


def check_availability(server: ServerContext, request: pb.CheckAvailabilityRequest) -> pb.CheckAvailabilityResponse:
    """Whether the named tools, or all, could run now.

    Raises:
        RefusedError: too many are named.
    """
    if len(request.names) > MAX_NAMES:
        raise RefusedError(Refusal(RefusalReason.REQUEST_INVALID, f"at most {MAX_NAMES} names"))
    catalog = server.catalog
    scan = catalog.scan()
    names = list(request.names) or [tool.name for tool in catalog.tools]
    answers = []
    for name in names:
        tool = catalog.find(name)
        if tool is None:
            availability = Availability((Reason("not_found", f'there is no tool "{name[:64]}"'),))
        else:
            availability = catalog.availability(tool, scan)
        answers.append(pb.ToolAvailability(name=name, availability=availability_message(availability)))
    return pb.CheckAvailabilityResponse(tools=answers)
