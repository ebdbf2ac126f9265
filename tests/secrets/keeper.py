"""A plugin that is granted secrets and leaks them in its output."""

from __future__ import annotations

CODE = '''
import asyncio
import base64
import os
import sys
from urllib.parse import quote

from fumehood_sdk import Content, Context, Plugin, SecretRefused, Text, ToolError

plugin = Plugin("keeper", version="1.0.0")


@plugin.tool(side_effects="none", requires=["secret:TOKEN"], isolation="process")
def length(ctx: Context) -> int:
    """Says how long the secret is."""
    return len(ctx.secret("TOKEN"))


@plugin.tool(side_effects="none", requires=["secret:TOKEN"], isolation="process")
async def later(ctx: Context) -> int:
    """Says it from an event loop."""
    return len(await ctx.asecret("TOKEN"))


@plugin.tool(side_effects="none", requires=["secret:TOKEN"], isolation="call")
def length_alone(ctx: Context) -> list[int]:
    """Says it in a process of its own, asked twice."""
    return [len(ctx.secret("TOKEN")), len(ctx.secret("TOKEN"))]


@plugin.tool(side_effects="none", requires=["secret:TOKEN"], isolation="call")
async def later_alone(ctx: Context) -> int:
    """The same on an event loop."""
    print("a word of", await ctx.asecret("TOKEN"), "alone", flush=True)
    return len(await ctx.asecret("TOKEN"))


@plugin.tool(side_effects="none", requires=["secret:TOKEN"], isolation="process")
async def both(ctx: Context) -> list[int]:
    """Asks many times at once."""
    return list(map(len, await asyncio.gather(*(ctx.asecret("TOKEN") for _ in range(6)))))


@plugin.tool(side_effects="none", requires=["secret:TOKEN"], isolation="process")
def reveal(ctx: Context) -> Content[dict[str, str]]:
    """Says the secret in every way there is."""
    value = ctx.secret("TOKEN")
    forms = {
        "plain": value,
        "base64": base64.b64encode(value.encode()).decode(),
        "basic": base64.b64encode(f"user:{value}".encode()).decode(),
        "url": quote(value, safe=""),
        "repr": repr(value),
    }
    for name, form in forms.items():
        ctx.log.info(f"log {name} {form}", form=form)
        ctx.update(f"update {name} {form}", data={"form": form})
        print(f"print {name} {form}", flush=True)
    half = len(value) // 2
    os.write(2, f"split {value[:half]}".encode())
    os.write(2, f"{value[half:]} over\\n".encode())
    os.write(2, b"y" * 8180 + b" " + value.encode() + b"\\n")
    return Content(Text(f"content {value}"), details=forms)


@plugin.tool(side_effects="none", requires=["secret:TOKEN"], isolation="process")
def fail(meant: bool, ctx: Context) -> str:
    """Fails with the secret in its mouth."""
    value = ctx.secret("TOKEN")
    if meant:
        raise ToolError(f"no luck with {value}", reason="no_luck", details={"used": value})
    raise ValueError(f"no luck with {value}")


@plugin.tool(side_effects="none", requires=["secret:TOKEN"], isolation="process")
def crash(ctx: Context) -> str:
    """Dies with the secret on its lips."""
    os.write(2, f"dying of {ctx.secret('TOKEN')}\\n".encode())
    os._exit(3)


@plugin.tool(side_effects="none", requires=["secret:TOKEN"], isolation="process")
def look_around(ctx: Context) -> dict[str, str]:
    """Shows what its process was started with, where a secret must not be."""
    ctx.secret("TOKEN")
    return {name: ascii(open(f"/proc/self/{name}", "rb").read()) for name in ("environ", "cmdline")}


@plugin.tool(side_effects="none", requires=["secret:OTHER"], isolation="process")
def other(name: str, ctx: Context) -> str:
    """Asks for any secret, and is granted one."""
    try:
        return str(len(ctx.secret(name)))
    except SecretRefused as error:
        return f"refused: {error.message}"


@plugin.tool(side_effects="none", requires=["secret:TOKEN"], isolation="process")
def process(ctx: Context) -> int:
    """Says which process it is in."""
    ctx.secret("TOKEN")
    with open("/dev/shm/marks", "a") as marks:
        marks.write("x")
    return os.path.getsize("/dev/shm/marks")


@plugin.tool(side_effects="none", requires=["secret:OTHER"], isolation="process")
def process_of_other() -> int:
    """The same with another secret."""
    with open("/dev/shm/marks", "a") as marks:
        marks.write("x")
    return os.path.getsize("/dev/shm/marks")


@plugin.tool(side_effects="none", requires=["secret:TOKEN", "secret:OTHER"], isolation="process")
def greedy() -> int:
    """Asks for more than it is granted."""
    return 1


@plugin.tool(side_effects="none", isolation="process")
def modest(ctx: Context) -> str:
    """Requires none."""
    try:
        ctx.secret("TOKEN")
    except SecretRefused as error:
        return error.reason
    return "handed out"
'''
