"""A plugin whose tools behave and misbehave in every way that the tests need."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fumehood_sdk import Blob, Cancelled, Content, Context, Field, Plugin, Text, ToolError, Transient

plugin = Plugin("kitchen", version="1.2.3")
kept: list[Context] = []


@dataclass
class Seen:
    attempt: int
    call_id: str
    has_time: bool
    readable_paths: list[str]
    writable_paths: list[str]
    request_id: str
    caused_by: str


@plugin.tool(side_effects="none", idempotent=True)
def echo(text: Annotated[str, Field(max_length=100_000)]) -> str:
    """Say it again."""
    return text


@plugin.tool(side_effects="none")
def seen(ctx: Context) -> Seen:
    """Tell what the context holds."""
    return Seen(
        attempt=ctx.attempt,
        call_id=ctx.call_id,
        has_time=ctx.remaining_s > 0 and ctx.deadline > time.monotonic(),
        readable_paths=list(ctx.readable_paths),
        writable_paths=list(ctx.writable_paths),
        request_id=ctx.correlation.request_id,
        caused_by=ctx.correlation.caused_by,
    )


@plugin.tool(side_effects="none")
def wait_politely(ctx: Context) -> str:
    """Go on until cancelled."""
    ctx.update("waiting")
    while not ctx.cancelled:
        time.sleep(0.001)
    return "saw it"


@plugin.tool(side_effects="none", sequential=True)
def wait_in_turn(ctx: Context) -> str:
    """Go on until cancelled, one at a time."""
    ctx.update("waiting")
    while not ctx.cancelled:
        time.sleep(0.001)
    return "saw it"


@plugin.tool(side_effects="none")
def sleep(ctx: Context) -> None:
    """Sleep for an hour."""
    ctx.update("sleeping")
    ctx.sleep(3600)


@plugin.tool(side_effects="none")
def spin(ctx: Context) -> None:
    """Compute for ever and look at nothing."""
    ctx.update("spinning")
    while True:
        pass


@plugin.tool(side_effects="none")
def chatter(ctx: Context) -> None:
    """Say long things for ever and look at nothing."""
    while True:
        ctx.update("x" * 8000, data={"y": "z" * 90_000})


@plugin.tool(side_effects="none")
def stubborn(ctx: Context) -> str:
    """Swallow the interruption."""
    ctx.update("spinning")
    try:
        while True:
            pass
    except Cancelled:
        return "swallowed"


@plugin.tool(side_effects="none")
async def wait_async(ctx: Context) -> str:
    """Sleep for an hour, asynchronously."""
    ctx.update("sleeping")
    await asyncio.sleep(3600)
    return "never"


@plugin.tool(side_effects="none", sequential=True)
async def wait_async_in_turn(ctx: Context) -> str:
    """Sleep for an hour, asynchronously, one at a time."""
    ctx.update("sleeping")
    await asyncio.sleep(3600)
    return "never"


@plugin.tool(side_effects="none")
async def echo_async(text: str) -> str:
    """Say it again, asynchronously."""
    await asyncio.sleep(0)
    return text


@plugin.tool(side_effects="none")
async def exit_async(in_a_task: bool) -> None:
    """Try to end the process from the event loop."""
    if not in_a_task:
        sys.exit(7)

    async def leave() -> None:
        sys.exit(8)

    task = asyncio.create_task(leave())
    await asyncio.sleep(0)
    await task


class Mute(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError("no words")


@plugin.tool(side_effects="none")
def fail(how: str) -> None:
    """Fail in the way that is asked for."""
    if how == "transient":
        raise Transient("the disk is busy")
    if how == "meant":
        raise ToolError("no such dish", reason="dish_unknown", details={"dish": "soup"})
    if how == "recursion":
        fail(how)
    kinds: dict[str, BaseException] = {
        "value": ValueError("wrong value"),
        "exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
        "generator": GeneratorExit(),
        "group": BaseExceptionGroup("several", [SystemExit(1)]),
        "mute": Mute(),
        "surrogate": ValueError("\ud800"),
        "long": ValueError("x" * 100_000),
        "cancelled": Cancelled("by itself"),
    }
    raise kinds[how]


@plugin.tool(side_effects="none")
def large(size: int) -> str:
    """Return that many characters."""
    return "x" * size


@plugin.tool(side_effects="none")
def unwritable() -> Any:
    """Return what JSON can't hold."""
    return {"thread": threading.current_thread()}


@plugin.tool(side_effects="none")
def blocks() -> Content[list[int]]:
    """Return text, bytes and details."""
    return Content(Text("a"), "b", Blob(b"\x00\xff", "image/png"), details=[1, 2], terminate=True)


@plugin.tool(side_effects="none")
def loud() -> str:
    """Write to stdout in every way."""
    print("printed")  # noqa: T201
    os.write(1, b"written to fd 1\n")
    os.system("echo from a shell")  # noqa: S605, S607
    subprocess.run(["/bin/echo", "from a program"], check=True)
    return sys.stdin.read()


@plugin.tool(side_effects="none")
def grandchild() -> str:
    """Hand what a forked child opened to its own child, as process pools do."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        opened = [os.memfd_create("own") for _ in range(4)]
        if os.fork() == 0:
            kept = [os.fstat(fd).st_size for fd in opened]
            os.write(write_end, str(kept).encode())
            os._exit(0)
        os.wait()
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as stream:
        return stream.read()


@plugin.tool(side_effects="none")
def inherited() -> list[list[str]]:
    """Tell what a forked child and a started program find open."""
    from descriptors import open_files  # noqa: PLC0415 - the plugin's folder is on the path of its own process alone

    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, "\n".join(open_files()).encode())
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as stream:
        forked = stream.read().splitlines()
    program = [sys.executable, str(Path(__file__).with_name("descriptors.py"))]
    run = subprocess.run(program, capture_output=True, text=True, close_fds=False, check=True)
    return [forked, run.stdout.splitlines()]


@plugin.tool(side_effects="none")
def keep(ctx: Context) -> None:
    """Keep the context beyond the call."""
    kept.append(ctx)
    ctx.log.info("kept", number=len(kept))


@plugin.tool(side_effects="none")
def speak_late() -> None:
    """Speak for the calls that are over."""
    for ctx in kept:
        ctx.update("late")
        ctx.log.warning("late line")
