"""Tools that the conformance suite of the Model Context Protocol calls by these names."""

from __future__ import annotations

import asyncio

from fumehood_sdk import Blob, Content, Context, Plugin, Text

plugin = Plugin("everything", version="1.0.0")

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c020000000b4944415478da6364f80f00010501012718e366"
    "0000000049454e44ae426082"
)
WAV = b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0D\xac\0\0\x88X\x01\0\x02\0\x10\0data\0\0\0\0"


@plugin.tool(side_effects="none", isolation="process")
def test_simple_text() -> str:
    """Returns a text."""
    return "This is a simple text response for testing."


@plugin.tool(side_effects="none", isolation="process")
def test_image_content() -> Content:
    """Returns an image."""
    return Content(Blob(PNG, "image/png"))


@plugin.tool(side_effects="none", isolation="process")
def test_audio_content() -> Content:
    """Returns sound."""
    return Content(Blob(WAV, "audio/wav"))


@plugin.tool(side_effects="none", isolation="process")
def test_embedded_resource() -> Content:
    """Returns a resource."""
    return Content(Blob(b"This is an embedded resource content.", "text/plain"))


@plugin.tool(side_effects="none", isolation="process")
def test_multiple_content_types() -> Content:
    """Returns a block of each kind."""
    return Content(
        Text("Multiple content types test:"),
        Blob(PNG, "image/png"),
        Blob(b'{"test":"data","value":123}', "application/json"),
    )


@plugin.tool(side_effects="none", isolation="process")
async def test_tool_with_logging(ctx: Context) -> str:
    """Says three things meanwhile."""
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.update(said)
        await asyncio.sleep(0.05)
    return "logged"


@plugin.tool(side_effects="none", isolation="process")
async def test_logging_tool(ctx: Context) -> str:
    """Says something meanwhile, to whoever asked for it."""
    ctx.update("said")
    return "logged"


@plugin.tool(side_effects="none", isolation="process")
async def test_tool_with_progress(ctx: Context) -> str:
    """Tells how far it is."""
    for done in (0, 50, 100):
        ctx.update("", progress=done, total=100)
        await asyncio.sleep(0.05)
    return "done"


@plugin.tool(side_effects="none", isolation="process")
def test_error_handling() -> str:
    """Fails."""
    raise RuntimeError("This tool intentionally returns an error for testing")


@plugin.tool(side_effects="write", isolation="process")
def test_input_required_result_tampered_state() -> str:
    """Runs once whoever sits at the client has approved it."""
    return "approved"
