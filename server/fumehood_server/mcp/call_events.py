"""Turns what a running tool says into progress and log notifications of the client that called it."""

from __future__ import annotations

import json
import math
from typing import Any

from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from mcp.server.context import ServerRequestContext
from mcp_types import LoggingLevel

from fumehood_server.mcp.log_levels import LogLevels


class CallEvents:
    """The notifications of one call."""

    __slots__ = ("_context", "_levels", "_progress", "_tool", "_wants_progress")

    def __init__(self, context: ServerRequestContext[Any, Any], tool: str, levels: LogLevels) -> None:
        """Nothing was said yet."""
        self._context = context
        self._tool = tool
        self._levels = levels
        self._progress = -math.inf
        self._wants_progress = "progressToken" in ((context.params or {}).get("_meta") or {})

    @property
    def wanted(self) -> bool:
        """Whether the client takes any: else the call needs no stream."""
        return self._wants_progress or self._levels.wants(self._context, "info")

    async def tell(self, event: pb.StreamToolResponse) -> None:
        """Notify the client of one event."""
        match event.WhichOneof("event"):
            case "update":
                await self._updated(event.update)
            case "retry":
                error = event.retry.error
                data = {"message": error.message, "code": error.code, "attempts": event.retry.attempts}
                await self._log("warning", data)

    async def _updated(self, update: tool_pb2.ToolUpdate) -> None:
        if self._wants_progress:
            # The protocol wants it to rise; a tool may name no number, or the same one again.
            given = update.progress if update.HasField("progress") else -math.inf
            least = 0.0 if math.isinf(self._progress) else math.nextafter(self._progress, math.inf)
            self._progress = max(given, least)
            total = update.total if update.HasField("total") else None
            await self._context.session.report_progress(self._progress, total, update.message or None)
        data: dict[str, Any] = {"message": update.message}
        if update.data_json:
            data["data"] = json.loads(update.data_json)
        if update.message or update.data_json:
            await self._log("info", data)

    async def _log(self, level: LoggingLevel, data: dict[str, Any]) -> None:
        if not self._levels.wants(self._context, level):
            return
        await self._context.session.send_log_message(
            level, data, logger=self._tool, related_request_id=self._context.request_id
        )
