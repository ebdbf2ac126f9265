"""What npx and uvx servers are once they are installed: packages held to a digest, whose processes dial nobody."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.command import Done, fumehood
from tests.mcp_import import dialling
from tests.mcp_import.npm_registry import npm_registry
from tests.plugins.wheels import index_environment, make_wheel
from tests.sidecar import Sidecar, running_sidecar

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm: `make setup` gets it")
LAUNCHERS = ("npx", "uvx")
BOUND_S = 60.0
_RUN = "import sys; sys.path.insert(0, sys.argv[1]); import dials; dials.run()"
REQUESTS = "".join(
    json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": {}}) + "\n"
    for number, method in enumerate(("initialize", "tools/call"))
)


@dataclass(frozen=True)
class Imported:
    """A folder with both servers in its configuration, and the listener that they dial."""

    folder: Path
    environment: dict[str, str]
    listener: socket.socket
    statuses: dict[str, str]

    def installed(self, launcher: str) -> Path:
        """The server's module in what was installed."""
        file = {"npx": "node_modules/dials/index.js", "uvx": "dials.py"}[launcher]
        (found,) = self.folder.glob(f".fumehood/environments/*/contents/{file}")
        return found

    def was_dialled(self) -> int:
        """How often, since it was last asked: whoever was connected to is in the listener's queue."""
        count = 0
        while select.select([self.listener], [], [], 0)[0]:
            self.listener.accept()[0].close()
            count += 1
        return count


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Imported]:
    folder = tmp_path_factory.mktemp("installed")
    index = folder / "dist"
    with npm_registry() as registry, socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        registry.publish("dials", "1.0.0", {"index.js": dialling.NODE % port}, bin="index.js")
        points = "[console_scripts]\ndials = dials:run\n"
        files = {"dials.py": dialling.PYTHON % port, "dials-1.0.0.dist-info/entry_points.txt": points}
        make_wheel(index, "dials", files=files)
        (folder / "fumehood.toml").write_text('[egress]\nallow_private = ["127.0.0.1"]\n')
        table = {"npx": {"command": "npx", "args": ["-y", "dials"]}, "uvx": {"command": "uvx", "args": ["dials"]}}
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": table}))
        environment = {**registry.environment, **index_environment(index)}
        done = fumehood("mcp", "import", "mcp.json", "--yes", "--json", folder=folder, more=environment)
        statuses = {each["server"]: each["status"] for each in done.json["servers"]}
        yield Imported(folder, environment, listener, statuses)


@pytest.fixture
def sidecar(imported: Imported) -> Iterator[Sidecar]:
    """What an operator serves who lets any tool be called, and grants no host."""
    config = imported.folder / "fumehood.toml"
    text = config.read_text()
    more = text.replace('max_side_effects = "read"', 'max_side_effects = "external"')
    more += '[[policy.rule]]\nname = "all"\npermission = "allow"\ntools = ["*"]\n'
    environment = {**os.environ, **imported.environment}
    try:
        with running_sidecar(at=imported.folder, more=more, environment=environment) as started:
            yield started
    finally:
        config.write_text(text)


def outside(server: Path) -> dict[str, str]:
    """What comes of the server's dialling without a sandbox."""
    command = ["node", str(server)] if server.suffix == ".js" else [sys.executable, "-c", _RUN, str(server.parent)]
    done = subprocess.run(command, input=REQUESTS, check=True, capture_output=True, text=True, timeout=BOUND_S)
    *_, answer = done.stdout.splitlines()
    found: dict[str, str] = json.loads(json.loads(answer)["result"]["content"][0]["text"])
    return found


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_installed_server_dials_nobody_as_it_is_imported_or_started_or_called(
    imported: Imported, sidecar: Sidecar, launcher: str
) -> None:
    assert imported.statuses[launcher] == "imported", imported.statuses
    assert imported.was_dialled() == 0, "by its import, which has started it"
    for tool in (f"dial_by_{launcher}", f"dial_in_secret_by_{launcher}"):
        done = fumehood("call", tool, address=sidecar.target)
        assert done.status == 0, done.stderr
        outcome = json.loads(done.stdout)
        assert set(outcome) == {"start", "call"}
        assert "done" not in outcome.values(), (tool, outcome)
    assert imported.was_dialled() == 0
    assert outside(imported.installed(launcher)) == {"start": "done", "call": "done"}
    assert imported.was_dialled() == 2


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_installed_server_of_which_a_byte_was_changed_is_not_started(
    imported: Imported, sidecar: Sidecar, launcher: str
) -> None:
    server = imported.installed(launcher)
    before, was = server.stat(), server.read_bytes()

    def write(content: bytes) -> None:
        """Write as somebody does who wants it not to be seen: in place, and with the old times."""
        with server.open("r+b") as file:
            file.write(content)
        os.utime(server, ns=(before.st_atime_ns, before.st_mtime_ns))

    def called(tool: str) -> Done:
        return fumehood("call", tool, "--json", address=sidecar.target)

    def reload() -> None:
        done = fumehood("plugin", "reload", launcher, address=sidecar.target)
        assert done.status == 0, done.stderr

    assert called(f"dial_by_{launcher}").status == 0
    server.chmod(0o644)
    try:
        write(was.replace(b"Says what came", b"Says what camE"))
        assert (server.stat().st_size, server.read_bytes() == was) == (before.st_size, False)
        at_next_start = called(f"dial_in_secret_by_{launcher}")  # whose process is the first of its level
        reload()
        after_reload = called(f"dial_by_{launcher}")
        for done in (at_next_start, after_reload):
            error = done.json["error"]
            assert (error["code"], "environment_changed" in json.dumps(error)) == ("TOOL_UNAVAILABLE", True), error
    finally:
        write(was)
        server.chmod(before.st_mode)
    reload()
    done = called(f"dial_in_secret_by_{launcher}")
    assert done.status == 0, "whose bytes are those that were installed"
