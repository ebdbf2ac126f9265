"""The step of a call that finds its tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fumehood_server.model.call import CallError
from fumehood_server.model.nearest import nearest
from fumehood_server.model.plugin import RegisteredTool, WorkerSpec
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Reason


class Tools(Protocol):
    """What the executor asks of the catalog."""

    async def look_for_programs(self) -> None:
        """Have plugins found whose program was installed meanwhile. Mostly nothing is waited for."""

    def find(self, name: str) -> RegisteredTool | None:
        """The tool of this name, available or not."""

    @property
    def tools(self) -> tuple[RegisteredTool, ...]:
        """Every tool."""


def find_tool(
    tools: Tools, name: str, may_list: Callable[[str], bool]
) -> tuple[RegisteredTool, WorkerSpec] | CallError:
    """The tool and what its workers are, or why it can't be called. Of others it names one that the caller may list.

    Availability is not looked up anew for a tool that loaded without a flaw.
    """
    tool = tools.find(name)
    if tool is None:
        if "/" in name:
            return CallError(
                code=Code.TOOL_NOT_FOUND,
                message=f'No MCP server is hosted under the name "{name.partition("/")[0][:64]}".',
                details={"tool": name[:128]},
            )
        near = nearest(name[:64], (each.name for each in tools.tools if may_list(each.name)))
        hint = f" {near[0].upper()}{near[1:]}" if near else ""
        hint += "." if hint and not hint.endswith("?") else ""
        return CallError(
            code=Code.TOOL_NOT_FOUND,
            message=f'There is no tool "{name[:64]}".{hint} ListTools names them all.',
            details={"tool": name[:64]},
        )
    if tool.spec is None or tool.reasons:
        return _unavailable(tool, tool.reasons or (Reason("plugin_refused", f"{tool.plugin} is not taken"),))
    return tool, tool.spec


def _unavailable(tool: RegisteredTool, reasons: tuple[Reason, ...]) -> CallError:
    why = "; ".join(each.message + (f" ({each.remedy})" if each.remedy else "") for each in reasons)
    return CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f"{tool.name} is not available: {why}",
        details={"reasons": [{"code": each.code, "message": each.message, "remedy": each.remedy} for each in reasons]},
    )
