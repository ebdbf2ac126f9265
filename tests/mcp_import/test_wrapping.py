"""`fumehood mcp wrap` is an MCP server on stdin and stdout, in front of one that is installed once and held."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.cli.command import fumehood
from tests.mcp_import import servers
from tests.mcp_import.npm_registry import NpmRegistry, npm_registry

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm: `make setup` gets it")
KEY = "sk-0123456789abcdefghij"
SERVER = ("npx", "-y", "@scope/notes")


@pytest.fixture(scope="module")
def registry() -> Iterator[NpmRegistry]:
    with npm_registry() as found:
        found.publish("@scope/notes", "1.0.0", {"index.js": servers.NODE}, bin={"notes": "index.js"})
        yield found


@pytest.fixture(scope="module")
def environment(registry: NpmRegistry, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    state = tmp_path_factory.mktemp("w")
    return {**registry.environment, "XDG_STATE_HOME": str(state), "API_KEY": KEY, "PATH": os.environ["PATH"]}


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notes")
    (folder / "first").write_text("")
    folder.chmod(0o777)
    return folder


async def calls(
    environment: dict[str, str], log: Path, *arguments: str | Path, tools: dict[str, dict[str, str]]
) -> tuple[dict[str, str], list[psutil.Process]]:
    """What each tool answers, and the processes that served it."""
    command = ["-P", "-m", "fumehood_server", "mcp", "wrap", *map(str, arguments)]
    with log.open("w") as stderr:
        parameters = StdioServerParameters(command=sys.executable, args=command, env=environment)
        async with stdio_client(parameters, errlog=stderr) as streams, ClientSession(*streams) as session:
            await session.initialize()
            listed = {tool.name for tool in (await session.list_tools()).tools}
            assert listed == {"list_notes", "keep_note", "tell"}
            said = {}
            for name, given in tools.items():
                result = await session.call_tool(name, given)
                said[name] = "".join(getattr(each, "text", "") for each in result.content)
            return said, psutil.Process().children(recursive=True)


@pytest.mark.slow("installs a server by npm, twice")
async def test_a_server_is_installed_once_and_held_to_what_the_options_grant(
    environment: dict[str, str], registry: NpmRegistry, notes: Path, tmp_path: Path
) -> None:
    options = ("--read", notes, "--secret", "API_KEY", "--env", "LEVEL=low", "--allow", "t*")
    wanted: dict[str, dict[str, str]] = {"list_notes": {}, "tell": {}, "keep_note": {"text": "x"}}
    said, processes = await calls(environment, tmp_path / "log", *options, "--", *SERVER, notes, tools=wanted)
    assert said["list_notes"] == "first"
    assert said["tell"] == '{"level":"low","key":"[secret API_KEY]"}'
    assert "needs an approval" in said["keep_note"]
    assert "--allow TOOL" in said["keep_note"]
    assert "fumehood approvals watch --address unix:/" in said["keep_note"]
    gone, alive = psutil.wait_procs(processes, timeout=20)
    assert (len(gone) > 1, alive) == (True, [])
    log = (tmp_path / "log").read_text()
    assert "each call of keep_note needs an approval" in log
    assert KEY not in log
    # Again: other grants, nothing to fetch.
    asked = len(registry.asked)
    options = ("--write", notes, "--secret", "API_KEY", "--env", "LEVEL=low", "--allow", "keep_note")
    said, _ = await calls(
        environment, tmp_path / "log", *options, "--", *SERVER, notes, tools={"keep_note": {"text": "x"}}
    )
    assert (said["keep_note"], (notes / "note").read_text()) == ("kept", "x")
    assert len(registry.asked) == asked
    kept = [path for path in Path(environment["XDG_STATE_HOME"]).rglob("*") if path.is_file()]
    assert not [path for path in kept if KEY.encode() in path.read_bytes()]
    assert any(path.name.startswith("journal") for path in kept)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--", "docker", "run", "x"), 1, "container"),
        (("--", "sh", "-c", "x"), 1, "a shell (sh)"),
        (("--", *SERVER, "--token=0123456789"), 1, "looks like a secret"),
        (("--secret", "NOT_SET", "--", *SERVER), 2, "no environment variable"),
        (("--env", "NOT_SET", "--", *SERVER), 2, "no environment variable"),
        ((), 2, "Missing argument"),
    ],
)
def test_what_cant_be_wrapped_says_why(
    environment: dict[str, str], arguments: tuple[str, ...], status: int, said: str
) -> None:
    done = fumehood("mcp", "wrap", *arguments, stdin="", more=environment)
    assert (done.status, done.stdout, said in done.stderr) == (status, "", True), done.stderr


def test_a_grant_that_holds_the_state_is_refused_in_words(tmp_path: Path) -> None:
    script = tmp_path / "code" / "server.py"
    script.parent.mkdir()
    script.write_text(servers.PYTHON + "\n\nrun()\n")
    with tempfile.TemporaryDirectory(prefix="fh-") as state:  # a unix socket's path has 107 bytes
        environment = {"XDG_STATE_HOME": f"{state}/state"}
        command = ("mcp", "wrap", "--allow", "*", "--write")
        done = fumehood(*command, state, "--", "python3", script, stdin="", more=environment)
        assert (done.status, "overlaps the sidecar's state_dir" in done.stderr) == (2, True), done.stderr
        assert "Traceback" not in done.stderr
        assert "XDG_STATE_HOME" in done.stderr
        done = fumehood(*command, tmp_path, "--", "python3", script, stdin="", more=environment)
        assert (done.status, "error:" in done.stderr) == (0, False), done.stderr
