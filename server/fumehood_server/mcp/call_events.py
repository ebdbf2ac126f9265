"""Turns what a running tool says into progress and log notifications of the client that called it."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from mcp.server.context import ServerRequestContext
from mcp_types import LoggingLevel

from fumehood_server.mcp.log_levels import LogLevels
from fumehood_server.validation.strict_json import JsonError, parse

_GRAVEST: LoggingLevel = "warning"
"""Of what is logged here: retries, and waits for somebody's decision."""

APPROVING = "`fumehood approvals watch`"
"""How somebody else than the client approves a call, where nothing else is said."""


class CallEvents:
    """The notifications of one call."""

    __slots__ = ("_approving", "_context", "_levels", "_progress", "_tool", "_wants_progress")

    def __init__(
        self, context: ServerRequestContext[Any, Any], tool: str, levels: LogLevels, approving: str = APPROVING
    ) -> None:
        """Nothing was said yet. `approving` says how a call is approved elsewhere."""
        self._approving = approving
        self._context = context
        self._tool = tool
        self._levels = levels
        self._progress = -math.inf
        self._wants_progress = "progressToken" in ((context.params or {}).get("_meta") or {})

    @property
    def wanted(self) -> bool:
        """Whether the client takes any: else the call needs no stream."""
        return self._wants_progress or self._levels.wants(self._context, _GRAVEST)

    async def tell(self, event: pb.StreamToolResponse) -> None:
        """Notify the client of one event."""
        match event.WhichOneof("event"):
            case "update":
                await self._updated(event.update)
            case "retry":
                error = event.retry.error
                data = {"message": error.message, "code": error.code, "attempts": event.retry.attempts}
                await self._log(_GRAVEST, data)
            case "approval":
                await self._waits(event.approval)

    async def _waits(self, approval: tool_pb2.ApprovalAwaited) -> None:
        """The call stands still until somebody decides, and can't be decided by the client itself."""
        message = (
            f"{approval.tool} waits for an approval, {approval.approval_id}: somebody who may approve it decides "
            f"({self._approving})"
        )
        await self._report(-math.inf, None, message)
        await self._log(_GRAVEST, {"message": message, "approval_id": approval.approval_id})

    async def _updated(self, update: tool_pb2.ToolUpdate) -> None:
        given = update.progress if update.HasField("progress") and math.isfinite(update.progress) else -math.inf
        total = update.total if update.HasField("total") and math.isfinite(update.total) else None
        await self._report(given, total, update.message or None)
        data: dict[str, Any] = {"message": update.message}
        if update.data_json:
            data["data"] = _json_or_text(update.data_json)
        if update.message or update.data_json:
            await self._log("info", data)

    async def _report(self, given: float, total: float | None, message: str | None) -> None:
        """Tell of progress. The protocol wants it to rise; a tool may name no number, or the same one again.

        At the greatest number of JSON's it stays: infinity would be sent as null, and fail the client's parsing.
        """
        if not self._wants_progress:
            return
        least = 0.0 if math.isinf(self._progress) else math.nextafter(self._progress, math.inf)
        self._progress = min(max(given, least), sys.float_info.max)
        await self._context.session.report_progress(self._progress, total, message)

    async def _log(self, level: LoggingLevel, data: dict[str, Any]) -> None:
        if not self._levels.wants(self._context, level):
            return
        await self._context.session.send_log_message(
            level, data, logger=self._tool, related_request_id=self._context.request_id
        )


def _json_or_text(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """What a tool says beside its message: as its text where it is no JSON, or is nested so that the SDK takes none."""
    try:
        parse(text)
    except JsonError:
        return text
    return json.loads(text)
