from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from fumehood.v1 import plugin_service_pb2_grpc, tool_service_pb2_grpc

from tests.sidecar import Sidecar, running_sidecar, write_plugin

CODE = '''
import asyncio
import time
from fumehood_sdk import Context, Plugin

plugin = Plugin("speech", version="1.0.0")


@plugin.tool(side_effects="none", idempotent=True, isolation="process")
def echo(text: str, times: int = 1) -> str:
    """Says it again."""
    return text * times


@plugin.tool(side_effects="none", isolation="process")
async def wait(seconds: float, ctx: Context) -> str:
    """Says that it has begun, and waits."""
    ctx.update("begun")
    ctx.log.info("begun")
    await asyncio.sleep(seconds)
    return "waited"


@plugin.tool(side_effects="none", isolation="process")
async def chatter(count: int, ctx: Context) -> str:
    """Says much."""
    for index in range(count):
        ctx.update(f"word {index}", progress=index, total=count)
        if index % 100 == 0:
            await asyncio.sleep(0)
    return "said"


@plugin.tool(side_effects="none", isolation="process")
def hang() -> str:
    """Listens to nobody."""
    while True:
        time.sleep(3600)


@plugin.tool(side_effects="none", isolation="process")
def fail() -> str:
    """Fails."""
    raise ValueError("it broke")


@plugin.tool(side_effects="none", isolation="process")
def shout(size: int) -> str:
    """Says too much."""
    return "x" * size


@plugin.tool(side_effects="none", isolation="process")
def die() -> str:
    """Takes its process with it."""
    import os
    os._exit(3)


@plugin.tool(side_effects="write", isolation="process")
def write() -> str:
    """Asks for more than is granted."""
    return "written"


@plugin.tool(side_effects="none", isolation="process")
def mutter(line: str) -> str:
    """Writes to the log."""
    print(line, flush=True)
    return "muttered"
'''


@pytest.fixture(scope="module")
def plugin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_plugin(tmp_path_factory.mktemp("plugins") / "speech", "speech", CODE)


@pytest.fixture(scope="module")
def sidecar(plugin_folder: Path) -> Iterator[Sidecar]:
    with running_sidecar([plugin_folder]) as sidecar:
        yield sidecar


@pytest.fixture
async def channel(sidecar: Sidecar) -> AsyncIterator[grpc.aio.Channel]:
    async with sidecar.channel() as channel:
        yield channel


@pytest.fixture
def tools(channel: grpc.aio.Channel) -> tool_service_pb2_grpc.ToolServiceStub:
    return tool_service_pb2_grpc.ToolServiceStub(channel)


@pytest.fixture
def plugins(channel: grpc.aio.Channel) -> plugin_service_pb2_grpc.PluginServiceStub:
    return plugin_service_pb2_grpc.PluginServiceStub(channel)
