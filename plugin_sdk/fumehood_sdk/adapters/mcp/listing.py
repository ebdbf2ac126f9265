"""Lists an MCP server's tools, page by page (`tools/list`), in bounds: of tools, and of pages that bring none."""

from __future__ import annotations

import json
from typing import Any

from fumehood_sdk.adapters.mcp.connection import ServerConnection
from fumehood_sdk.adapters.mcp.faults import ServerFault
from fumehood_sdk.adapters.mcp.messages import Message
from fumehood_sdk.adapters.mcp.negotiation import Session, ask, error_text

LIST_TIMEOUT_S = 30.0
"""For one page. The sidecar ends a start that takes too long well before."""
MAX_TOOLS = 1024
MAX_PAGES_WITHOUT_TOOLS = 8
"""Of one list, that name another page. The protocol allows some, as of a server that filters each page for its caller;
without a bound a list need never end."""
_READ = frozenset({"resources", "prompts"})
"""Capabilities of servers that are of use without tools."""


class ToolPages:
    """The pages of one list, as they come."""

    __slots__ = ("_cursor", "_cursors", "_without_tools", "tools")

    def __init__(self) -> None:
        """None has come."""
        self.tools: list[dict[str, Any]] = []
        """Those of all pages. What is no object is left out."""
        self._cursor = ""
        self._cursors: set[str] = set()
        self._without_tools = 0

    @property
    def fields(self) -> bytes:
        """Members of the parameters that ask for the next page, each before a comma."""
        return b'"cursor":%b,' % json.dumps(self._cursor).encode() if self._cursor else b""

    def take(self, answer: Message | None) -> bool:
        """Take a page. Returns whether another one is to be asked for.

        Raises:
            ServerFault: it is no page, there are too many tools, or the list doesn't come to an end.
        """
        if answer is None or not has_page(answer):
            text = "it doesn't answer" if answer is None else error_text(answer)
            raise ServerFault(f"the MCP server lists no tools: {text}")
        result = answer["result"]
        page = [tool for tool in result["tools"] if isinstance(tool, dict)]
        self.tools += page
        if len(self.tools) > MAX_TOOLS:
            raise ServerFault(f"the MCP server lists more than {MAX_TOOLS} tools")
        cursor = result.get("nextCursor")
        if not isinstance(cursor, str) or not cursor:
            return False
        if cursor in self._cursors:
            raise ServerFault("the MCP server's list of tools doesn't end: it names a cursor that it has named before")
        self._without_tools += not page
        if self._without_tools > MAX_PAGES_WITHOUT_TOOLS:
            raise ServerFault(
                f"the MCP server's list of tools doesn't end: more than {MAX_PAGES_WITHOUT_TOOLS} pages hold no tool "
                "and name a further page"
            )
        self._cursor = cursor
        self._cursors.add(cursor)
        return True


def list_tools(connection: ServerConnection, session: Session) -> list[dict[str, Any]]:
    """Every page. A server that has resources or prompts needs no tools, and may declare none.

    Raises:
        ServerFault: the server doesn't answer, answers something else, or has too many tools, or nothing at all.
    """
    needs_none = not session.offers.isdisjoint(_READ)
    if needs_none and "tools" not in session.offers:
        return []
    pages = ToolPages()
    while pages.take(ask(connection, "tools/list", session.params(pages.fields), LIST_TIMEOUT_S)):
        pass
    if not (pages.tools or needs_none):
        raise ServerFault("the MCP server lists no tools")
    return pages.tools


def has_page(answer: Message) -> bool:
    """Whether an answer to `tools/list` holds a list, whatever is in that."""
    result = answer.get("result")
    return isinstance(result, dict) and isinstance(result.get("tools"), list)
