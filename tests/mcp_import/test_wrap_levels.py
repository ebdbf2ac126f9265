"""`fumehood mcp wrap --one-process` and `--level`: a server that keeps state, and one that says too little."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.cli.command import fumehood
from tests.mcp.support import SERVERS
from tests.mcp.test_schemas import CODE, UNTAKEN
from tests.mcp.web import web_server
from tests.mcp_import.own_server import write_script
from tests.mcp_import.test_wrap_updates import WRAP


@pytest.fixture(scope="module")
def state() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:  # a unix socket's path has 107 bytes
        yield {"XDG_STATE_HOME": name, "PATH": os.environ["PATH"]}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_script(tmp_path_factory.mktemp("small"), (SERVERS / "small.py").read_text())


async def answers(
    state: dict[str, str],
    log: Path,
    script: Path,
    *options: str,
    calls: list[tuple[str, dict[str, str]]],
    more: tuple[str, ...] = (),
) -> list[str]:
    """What each call answers, in turn. `more` are the script's own arguments."""
    arguments = [*WRAP[1:], *options, "--", "python3", str(script), *more]
    parameters = StdioServerParameters(command=WRAP[0], args=arguments, env=state)
    with log.open("w") as stderr:
        async with stdio_client(parameters, errlog=stderr) as streams, ClientSession(*streams) as session:
            await session.initialize()
            results = [await session.call_tool(name, given) for name, given in calls]
    return ["".join(getattr(each, "text", "") for each in result.content) for result in results]


async def test_server_keeps_state_between_calls_of_every_level_where_it_has_one_process(
    tmp_path: Path, state: dict[str, str], script: Path
) -> None:
    calls: list[tuple[str, dict[str, str]]] = [("count_up", {}), ("count", {})]
    assert await answers(state, tmp_path / "log", script, calls=calls) == ["1", "0"]
    assert await answers(state, tmp_path / "log", script, "--one-process", calls=calls) == ["1", "1"]


async def test_tool_that_says_that_it_only_reads_reaches_a_granted_host_at_the_level_that_it_is_given(
    tmp_path: Path, state: dict[str, str], script: Path
) -> None:
    with web_server() as port:
        network = ("--network", f"127.0.0.1:{port}")
        calls = [("sneaky_fetch", {"url": f"http://127.0.0.1:{port}/"})]
        (refused,) = await answers(state, tmp_path / "log", script, *network, calls=calls)
        assert "page" not in refused
        log = (tmp_path / "log").read_text()
        assert "sneaky_fetch, sneaky_write, by the server's word, only read" in log
        assert "reach no network: --level ask_client=external" in log
        assert "each of environment, fetch counts as external" in log
        given = (*network, "--level", "sneaky_fetch=external")
        assert await answers(state, tmp_path / "log", script, *given, calls=calls) == ["page"]
        assert "sneaky_fetch," not in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("given", "said"),
    [("fetch", "not TOOL=LEVEL"), ("fetch=high", "not TOOL=LEVEL"), ("fetsh=read", 'did you mean "fetch"?')],
)
def test_level_that_fits_nothing_is_refused(state: dict[str, str], script: Path, given: str, said: str) -> None:
    done = fumehood("mcp", "wrap", "--level", given, "--", "python3", script, stdin="", more=state)
    assert (done.status, said in done.stderr) == (2, True), done.stderr


def test_tool_whose_schema_is_not_taken_is_said_to_be_unavailable(tmp_path: Path, state: dict[str, str]) -> None:
    odd = {"name": "odd", "annotations": {"readOnlyHint": True}, **UNTAKEN["elsewhere"]}
    script = write_script(tmp_path, CODE % [odd, {"name": "good"}])
    done = fumehood("mcp", "wrap", "--", "python3", script, stdin="", more=state)
    lines = done.stderr.splitlines()
    (said,) = [line for line in lines if "odd" in line]
    assert "odd is unavailable: `input_schema`" in said, done.stderr
    assert [line for line in lines if "good counts as external" in line], done.stderr
