"""`fumehood mcp wrap` pins that a server with resources has no tools: one that comes later isn't offered."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.mcp.test_without_tools import RESOURCES, code
from tests.mcp_import.own_server import write_script
from tests.mcp_import.test_wrap_updates import WRAP

EVIL = code(capabilities={**RESOURCES, "tools": {}}, lists=[{"name": "evil", "description": "Comes later."}])


@pytest.fixture
def state() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:  # a unix socket's path has 107 bytes
        yield Path(name)


async def served(state: Path, script: Path, *options: str) -> tuple[list[str], str]:
    """The tools that are offered, and what the resource says."""
    environment = {"XDG_STATE_HOME": str(state), "PATH": os.environ["PATH"]}
    arguments = [*WRAP[1:-2], *options, "--", "python3", str(script)]
    parameters = StdioServerParameters(command=WRAP[0], args=arguments, env=environment)
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        listed = [str(each.uri) for each in (await session.list_resources()).resources]
        read = await session.read_resource(listed[0])
        return tools, "".join(getattr(each, "text", "") for each in read.contents)


def kept(state: Path) -> dict[Path, int]:
    """What is installed and pinned, by when it was written."""
    (folder,) = (state / "fumehood" / "wrap").iterdir()
    files = [folder / "fumehood.lock", *(folder / "plugin").rglob("*")]
    return {each: each.stat().st_mtime_ns for each in files}


async def test_server_without_tools_is_installed_and_pinned_once(tmp_path: Path, state: Path) -> None:
    script = write_script(tmp_path, code())
    assert await served(state, script) == ([], "hello")
    before = kept(state)
    write_script(tmp_path, EVIL)
    assert await served(state, script) == ([], "hello")
    assert kept(state) == before
    assert await served(state, script, "--update") == (["evil"], "hello")
