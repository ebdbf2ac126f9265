"""What hostile callers call."""

import time

from fumehood_sdk import Context, Plugin

plugin = Plugin("honest", version="1.0.0")


@plugin.tool(side_effects="none", idempotent=True)
def echo(text: str) -> str:
    """Says it again."""
    return text


@plugin.tool(side_effects="none")
def big(size: int) -> str:
    """Says much."""
    return "x" * size


@plugin.tool(side_effects="none")
def hold(text: str, seconds: float) -> int:
    """Takes its time."""
    time.sleep(seconds)
    return len(text)


@plugin.tool(side_effects="none")
def chatter(count: int, ctx: Context) -> str:
    """Says how it gets on, very often."""
    for number in range(count):
        ctx.update(f"step {number}")
    return "said"


@plugin.tool(side_effects="none")
def mutter(lines: int, pause_s: float) -> str:
    """Writes to its log."""
    for number in range(lines):
        print(number, flush=True)  # noqa: T201 - a line of stderr
        time.sleep(pause_s)
    return "muttered"
