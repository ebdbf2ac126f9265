"""Two sidecars on one PostgreSQL, whose tools write lines once they are let go."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
from fumehood.v1 import tool_service_pb2 as pb

from tests.rpc.support import ToolClient
from tests.sidecar import Sidecar, running_sidecar, write_plugin

CODE = """
import time
from pathlib import Path
from fumehood_sdk import Context, Plugin

plugin = Plugin("ledger", version="1.0.0")


def _run(folder: str, line: str, until: str) -> str:
    while until and not Path(until).exists():
        time.sleep(0.005)
    return line


@plugin.tool(side_effects="write", isolation="process")
def enter(folder: str, line: str, until: str = "") -> str:
    \"\"\"Adds a line, once a file is there.\"\"\"
    with (Path(folder) / "entries").open("a") as file:
        file.write(line + "\\n")
    return _run(folder, line, until)


@plugin.tool(side_effects="write", idempotent=True, isolation="process")
def put(folder: str, line: str, ctx: Context, until: str = "") -> int:
    \"\"\"The same, and may be done twice.\"\"\"
    with (Path(folder) / "entries").open("a") as file:
        file.write(f"{line}:{ctx.attempt}\\n")
    _run(folder, line, until)
    return ctx.attempt


@plugin.tool(side_effects="read", isolation="process")
def look(folder: str, line: str, until: str = "") -> str:
    \"\"\"Waits until a file is there.\"\"\"
    return _run(folder, line, until)
"""
KEEP = """
from fumehood_sdk import Context, Plugin

plugin = Plugin("alone", version="1.0.0")


@plugin.tool(side_effects="write", idempotent=True, isolation="process", timeout_s=3600)
def keep(ctx: Context) -> None:
    \"\"\"Does nothing for long.\"\"\"
    ctx.update("here")
    while True:
        pass
"""
BOUND_S = 30.0


@dataclass(frozen=True)
class Pair:
    sidecars: tuple[Sidecar, Sidecar]
    clients: tuple[ToolClient, ToolClient]
    folder: Path
    """That the tools may write in."""
    url: str

    def arguments(self, line: str, *, waits: bool = False) -> dict[str, str]:
        until = {"until": str(self.folder.parent / "r" / f"go-{line}")} if waits else {}
        return {"folder": str(self.folder), "line": line, **until}

    def let_go(self, line: str) -> None:
        (self.folder.parent / "r" / f"go-{line}").touch()

    def entries(self) -> list[str]:
        path = self.folder / "entries"
        return path.read_text().split() if path.exists() else []


def start(
    stack: contextlib.ExitStack, at: Path, entries: Path, url: str, more: str = "", *, alone: bool = False
) -> Sidecar:
    """`alone`: with a tool that the others don't have."""
    at.mkdir(exist_ok=True)
    plugin = write_plugin(at / "plugin", "ledger", CODE)
    grants = f'max_side_effects = "write"\nwrite = ["{entries}"]\nread = ["{entries.parent / "r"}"]\n'
    grants += "".join(f'[plugin.tools.{each}]\npermission = "allow"\n' for each in ("enter", "put"))
    plugins = [(plugin, grants)]
    if alone:
        allowed = 'max_side_effects = "write"\n[plugin.tools.keep]\npermission = "allow"\n'
        plugins.append((write_plugin(at / "alone", "alone", KEEP), allowed))
    return stack.enter_context(running_sidecar(plugins, more=f'[journal]\nstore = "{url}"\n{more}', at=at))


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """For sockets, whose paths are short, with a folder that tools may write in and one that they may read."""
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for each, mode in (("e", 0o777), ("r", 0o755)):
            (folder / each).mkdir()
            (folder / each).chmod(mode)
        yield folder


async def found(client: ToolClient, call_id: str, *, wait: bool = False) -> pb.GetCallResponse:
    async with asyncio.timeout(BOUND_S):
        while True:
            try:
                return await client.tools.GetCall(pb.GetCallRequest(call_id=call_id, wait=wait))
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    raise
                await asyncio.sleep(0.01)
