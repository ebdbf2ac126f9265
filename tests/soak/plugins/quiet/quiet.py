"""What the caller that behaves well calls, and nobody else: calls share the workers of their plugin."""

from fumehood_sdk import Plugin

plugin = Plugin("quiet", version="1.0.0")


@plugin.tool(side_effects="none", idempotent=True)
def repeat(text: str) -> str:
    """Says it again."""
    return text
