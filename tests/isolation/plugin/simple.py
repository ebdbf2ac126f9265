"""As little as a plugin can be: what every call costs."""

from fumehood_sdk import Plugin

plugin = Plugin("simple", version="1.0.0")


@plugin.tool(side_effects="none", isolation="call")
def echo(text: str) -> str:
    """Return `text`."""
    return text
