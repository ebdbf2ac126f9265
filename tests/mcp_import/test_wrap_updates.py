"""`fumehood mcp wrap --update` changes nothing for clients that start, or have started, the same server."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.mcp_import import servers
from tests.mcp_import.own_server import write_script

WRAP = (sys.executable, "-P", "-m", "fumehood_server", "mcp", "wrap", "--allow", "*")
TEXT = servers.PYTHON + "\n\nrun()\n"


@pytest.fixture
def state() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:  # a unix socket's path has 107 bytes
        yield {"XDG_STATE_HOME": name, "PATH": os.environ["PATH"]}


async def started(state: dict[str, str], script: Path, *options: str) -> tuple[int | None, str]:
    """How a start ends whose client leaves at once. Not forked: modules are imported after the installation."""
    command = (*WRAP, *options, "--", "python3", str(script))
    null, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=null, stdout=null, stderr=pipe, env=state)
    _, said = await process.communicate()
    return process.returncode, said.decode()


async def test_starts_and_updates_at_the_same_time_all_serve(tmp_path: Path, state: dict[str, str]) -> None:
    script = write_script(tmp_path)
    options: list[tuple[str, ...]] = [("--update",), ("--update",), (), ("--update",)]
    ends = await asyncio.gather(*(started(state, script, *each) for each in options))
    assert [status for status, _ in ends] == [0] * len(options), ends


async def test_a_client_keeps_the_server_that_it_has_started(tmp_path: Path, state: dict[str, str]) -> None:
    script = write_script(tmp_path, TEXT.replace('" ".join(sys.argv[1:])', '"old"'))

    async def answer(session: ClientSession) -> str:
        result = await session.call_tool("who_am_i", {})
        return "".join(getattr(each, "text", "") for each in result.content)

    parameters = StdioServerParameters(command=WRAP[0], args=[*WRAP[1:], "--", "python3", str(script)], env=state)
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        write_script(tmp_path, TEXT.replace('" ".join(sys.argv[1:])', '"new"'))
        status, said = await started(state, script, "--update")
        assert status == 0, said
        assert await answer(session) == "old"
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        assert await answer(session) == "new"


async def test_what_is_left_out_of_the_copy_is_said_when_it_is_installed(tmp_path: Path, state: dict[str, str]) -> None:
    script = write_script(tmp_path)
    (script.parent / "mcp.json").write_text('{"mcpServers": {}}')
    (script.parent / "data.json").write_text("{}")
    said = "left out of the copy of its code: mcp.json ("
    for options, count in (((), 1), ((), 0), (("--update",), 1)):
        status, text = await started(state, script, *options)
        assert (status, text.count(said)) == (0, count), text
    (script.parent / "mcp.json").unlink()
    status, text = await started(state, script, "--update")
    assert (status, "left out" in text) == (0, False), text


async def test_update_that_fails_leaves_what_was_installed(tmp_path: Path, state: dict[str, str]) -> None:
    script = write_script(tmp_path)
    assert (await started(state, script))[0] == 0
    write_script(tmp_path, "raise SystemExit('broken')\n")
    status, said = await started(state, script, "--update")
    assert (status, "broken" in said) == (1, True), said
    status, said = await started(state, script)
    assert status == 0, said
    write_script(tmp_path)
    assert (await started(state, script, "--update"))[0] == 0
    assert not [*Path(state["XDG_STATE_HOME"]).rglob("old-*")]
