"""Runs the code that a test sends, in the process that a call gets."""

import asyncio
from typing import Any

from fumehood_sdk import Context, Plugin

plugin = Plugin("probe", version="1.0.0")
AT_IMPORT = ["imported"]
"""What a call might leave something in."""


def _run(code: str, ctx: Context) -> Any:
    names: dict[str, Any] = {"ctx": ctx, "AT_IMPORT": AT_IMPORT}
    exec(code, names)  # noqa: S102 - its purpose
    return names.get("result")


@plugin.tool(side_effects="none", isolation="call")
def run(code: str, ctx: Context) -> Any:
    """Execute `code` and return what it leaves in `result`."""
    return _run(code, ctx)


@plugin.tool(side_effects="none", isolation="call")
async def arun(code: str, ctx: Context) -> Any:
    """Execute `code`, whose `main` is awaited, and return what that returns."""
    names: dict[str, Any] = {"ctx": ctx, "asyncio": asyncio}
    exec(code, names)  # noqa: S102 - its purpose
    return await names["main"]()
