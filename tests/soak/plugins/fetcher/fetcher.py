"""Fetches what it is told to. It serves as three plugins: two that are hostile, and their neighbour."""

import asyncio

from fumehood_sdk import Context, Plugin

plugin = Plugin("fetcher", version="1.0.0")


@plugin.tool(side_effects="read", idempotent=True)
async def fetch(url: str, times: int, ctx: Context) -> list[str]:
    """Fetches a URL several times at once."""

    async def one() -> str:
        try:
            return str((await ctx.http.aget(url)).status)
        except Exception as error:  # noqa: BLE001 - the reason is the answer
            return str(getattr(error, "reason", type(error).__name__))

    return await asyncio.gather(*(one() for _ in range(times)))
