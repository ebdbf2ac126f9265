"""What the caller that behaves well calls, and nobody else: calls share the workers of their plugin.

A warm worker: a process for each of its hundred calls a second would measure the forks.
"""

from fumehood_sdk import Plugin

plugin = Plugin("quiet", version="1.0.0")


@plugin.tool(side_effects="none", idempotent=True, isolation="process")
def repeat(text: str) -> str:
    """Says it again."""
    return text
