"""The echo in a process of its own for each call, and one that stays."""

from fumehood_sdk import Context, Plugin

plugin = Plugin("fresh", version="1.0.0", concurrency=32)


@plugin.tool(side_effects="none", idempotent=True)
def echo(text: str) -> str:
    """Say the same."""
    return text


@plugin.tool(side_effects="none", idempotent=True, isolation="call")
def stay(text: str, ctx: Context) -> str:
    """Say that it has begun, and stay until it is ended."""
    ctx.update(text)
    ctx.sleep(ctx.remaining_s)
    return text
