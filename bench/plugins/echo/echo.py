"""Says the same: the least that a tool can do."""

from fumehood_sdk import Plugin

plugin = Plugin("echo", version="1.0.0")


@plugin.tool(side_effects="none", idempotent=True, isolation="process")
def echo(text: str) -> str:
    """Say the same."""
    return text
