"""Lists tools, and looks up whether they could run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.caller import Caller
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.tool import Availability, Reason
from fumehood_server.rpc.paging import MAX_PAGE_BYTES, make_token, page_size, read_token
from fumehood_server.rpc.tool_filter import ToolFilter, check_names
from fumehood_server.rpc.tool_formats import is_known, tool_json
from fumehood_server.rpc.tool_messages import availability_message

if TYPE_CHECKING:
    from fumehood_server.rpc.server_context import ServerContext

_Listed = TypeVar("_Listed")


def list_tools(server: ServerContext, request: pb.ListToolsRequest, caller: Caller) -> pb.ListToolsResponse:
    """A page of those that the caller may list.

    Raises:
        RefusedError: the page's size or token is wrong, or a filter, or the format.
    """
    tool_format = request.format
    if not tool_format:
        tools, token = _page(server, request, caller, server.tools.tool, tool_pb2.Tool.ByteSize)
        return pb.ListToolsResponse(tools=tools, next_page_token=token)
    if not is_known(tool_format):
        raise RefusedError(Refusal(RefusalReason.REQUEST_INVALID, f"format {tool_format} is not known here"))
    texts, token = _page(server, request, caller, lambda tool, _: tool_json(tool, tool_format), len)
    return pb.ListToolsResponse(tools_json=f"[{','.join(texts)}]", next_page_token=token)


def _page(
    server: ServerContext,
    request: pb.ListToolsRequest,
    caller: Caller,
    write: Callable[[RegisteredTool, Availability], _Listed],
    size_of: Callable[[_Listed], int],
) -> tuple[list[_Listed], str]:
    """The tools that a page has, each as `write` writes it, and the token of the next."""
    most, wanted = page_size(request.page_size), ToolFilter(request)
    after = read_token(request.page_token, wanted.key)
    catalog = server.catalog
    scan = catalog.scan()
    may = server.callers.may_call if request.callable_only else server.callers.may_list
    page: list[_Listed] = []
    page_bytes, last = 0, ""
    for tool in catalog.tools:
        if tool.name <= after or not wanted.takes(tool) or not may(caller, tool.name):
            continue
        availability = catalog.availability(tool, scan)
        if availability.reasons and not request.include_unavailable:
            continue
        listed = write(tool, availability)
        page_bytes += size_of(listed)
        if len(page) == most or (page and page_bytes > MAX_PAGE_BYTES):
            return page, make_token(last, wanted.key)
        page.append(listed)
        last = tool.name
    return page, ""


def get_tool(server: ServerContext, request: pb.GetToolRequest, caller: Caller) -> pb.GetToolResponse:
    """One tool.

    Raises:
        RefusedError: it isn't named, or there is none of this name that the caller may list.
    """
    if not request.name:
        raise RefusedError(Refusal(RefusalReason.REQUEST_INVALID, "name is required"))
    scan = server.catalog.scan()
    tool = server.catalog.find(request.name)
    if tool is None or not server.callers.may_list(caller, tool.name):
        raise RefusedError(Refusal(RefusalReason.TOOL_NOT_FOUND, f'there is no tool "{request.name[:64]}"'))
    return pb.GetToolResponse(tool=server.tools.tool(tool, server.catalog.availability(tool, scan)))


def check_availability(
    server: ServerContext, request: pb.CheckAvailabilityRequest, caller: Caller
) -> pb.CheckAvailabilityResponse:
    """Whether the named tools, or all that the caller may list, could run now.

    Raises:
        RefusedError: too many are named.
    """
    check_names(request.names)
    catalog = server.catalog
    scan = catalog.scan()
    may_list = functools.partial(server.callers.may_list, caller)
    names = list(request.names) or [tool.name for tool in catalog.tools if may_list(tool.name)]
    answers = []
    for name in names:
        tool = catalog.find(name)
        if tool is None or not may_list(name):
            availability = Availability((Reason("not_found", f'there is no tool "{name[:64]}"'),))
        else:
            availability = catalog.availability(tool, scan)
        answers.append(pb.ToolAvailability(name=name, availability=availability_message(availability)))
    return pb.CheckAvailabilityResponse(tools=answers)
