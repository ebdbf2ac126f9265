"""A plugin that notes each of its runs in a file, and the folder in which sidecars serve it one after another."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from fumehood.v1 import tool_service_pb2 as pb

from tests.sidecar import Sidecar, running_sidecar, write_plugin

CODE = """
import time
from pathlib import Path
from fumehood_sdk import Plugin, Context

plugin = Plugin("diary", version="1.0.0")


@plugin.tool(side_effects="write", isolation="process")
def note(folder: str, line: str = "x") -> int:
    \"\"\"Adds a line, and says how many there are.\"\"\"
    path = Path(folder) / "diary"
    with path.open("a") as file:
        file.write(line + "\\n")
    return len(path.read_text().splitlines())


@plugin.tool(side_effects="write", isolation="process")
def note_and_hang(folder: str, ctx: Context) -> str:
    \"\"\"Adds a line and never answers.\"\"\"
    with (Path(folder) / "diary").open("a") as file:
        file.write("hung\\n")
    ctx.update("written")
    time.sleep(3600)
    return ""


@plugin.tool(side_effects="none", isolation="process")
def pause(seconds: float) -> str:
    \"\"\"Waits.\"\"\"
    time.sleep(seconds)
    return "waited"


@plugin.tool(side_effects="read", isolation="process")
def hold(folder: str, name: str) -> str:
    \"\"\"Waits until there is a file of this name.\"\"\"
    while not (Path(folder) / name).exists():
        time.sleep(0.01)
    return "held"


@plugin.tool(side_effects="none", isolation="process")
def fill(size: int) -> str:
    \"\"\"Says much.\"\"\"
    return "x" * size
"""


class Place:
    """Where sidecars run one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.diary = folder / "notes"
        self.diary.mkdir(mode=0o777)
        self.diary.chmod(0o777)
        self.signals = folder / "signals"
        self.signals.mkdir(mode=0o755)
        plugin = write_plugin(folder / "plugin", "diary", CODE)
        tools = "".join(f'[plugin.tools.{name}]\npermission = "allow"\n' for name in ("note", "note_and_hang"))
        grants = f'max_side_effects = "write"\nread = ["{self.signals}"]\nwrite = ["{self.diary}"]\n'
        self.plugin = (plugin, f"{grants}{tools}")

    def sidecar(self, more: str = "") -> AbstractContextManager[Sidecar]:
        return running_sidecar([self.plugin], more=more, at=self.folder)

    def lines(self) -> list[str]:
        path = self.diary / "diary"
        return path.read_text().splitlines() if path.exists() else []

    def call(self, call_id: str, tool: str = "note", **arguments: object) -> pb.CallToolRequest:
        folders = {"note": self.diary, "note_and_hang": self.diary, "hold": self.signals}
        if tool in folders:
            arguments["folder"] = str(folders[tool])
        return pb.CallToolRequest(tool=tool, arguments_json=json.dumps(arguments), call_id=call_id)


@contextlib.contextmanager
def new_place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield Place(folder)
