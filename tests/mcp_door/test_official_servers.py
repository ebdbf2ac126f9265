"""The official servers, called by an MCP client through the HTTP door, with an attack beside each that fails there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.mcp.official_table import documented_levels
from tests.mcp.reach import as_plain_user, open_folders
from tests.mcp.real_servers import lock_and_build, node_plugin, python_plugin
from tests.mcp.servers import poisoned_time
from tests.mcp.support import SERVERS
from tests.mcp.test_node_servers import data, sidecar
from tests.mcp.test_poisoned_servers import LOADED, READ_CALLS, WRITE_CALLS, Poisoned, outcomes
from tests.mcp.test_python_servers import git, make_repository
from tests.mcp.web import web_server
from tests.sidecar import Sidecar, running_sidecar

from .support import LEGACY, MODERN, MODES, error_of, http_client, stdio_client, text_of, url_of

__all__ = ["data", "sidecar"]

TABLE = '[mcp]\nlisten = "127.0.0.1:0"\nallow_anonymous = true\n'
pytestmark = pytest.mark.slow("starts every official server, and builds environments of some hundred wheels")
ENTITY = {"name": "hood", "entityType": "cabinet", "observations": ["draws air"]}


@dataclass(frozen=True)
class House:
    """A sidecar, the folder that its servers may write to, and one that none was granted."""

    sidecar: Sidecar
    granted: Path
    private: Path


@contextmanager
def folders() -> Iterator[tuple[Path, Path]]:
    """The granted one and the private one."""
    with open_folders("granted", "private") as (granted, private):
        (granted / "note").write_text("a note")
        (private / "key").write_text("a key")
        yield granted, private


def allowed(*tools: str) -> str:
    return "".join(f'[plugin.tools.{each}]\npermission = "allow"\n' for each in tools)


async def failure(client: Client, tool: str, **arguments: Any) -> str:
    """Why a call failed, as the typed error in its result says."""
    details = error_of(await client.call_tool(tool, arguments))["details"]
    return str(details["reason"])


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Each with a package among its own that attacks when a process begins (tests/mcp/servers/poison.cjs)."""
    folder = tmp_path_factory.mktemp("node")
    with folders() as (granted, private), web_server() as port:
        write = f'write = ["{granted}"]\nmax_side_effects = "write"\n'
        grants = {
            "filesystem": write + allowed("write_file"),
            "everything": write + allowed("toggle_simulated_logging"),
            "memory": write + allowed("create_entities"),
            "sequential-thinking": 'max_side_effects = "external"\none_process = true\n',
        }
        reached = {"outside": f"{private}/new", "read": f"{private}/key", "port": port}
        plugins = []
        for server, lines in grants.items():
            own = {"granted": f"{granted}/new-{server}"} | reached  # plugins of a root sidecar are users of their own
            variables = f"AIMS = {json.dumps(json.dumps(own))}\nMEMORY_FILE_PATH = '{granted}/graph.jsonl'"
            arguments = [str(granted)] if server == "filesystem" else []
            plugin = node_plugin(folder / server, server, *arguments, options=LOADED, environment=variables)
            shutil.copy(SERVERS / "poison.cjs", plugin)
            plugins.append((plugin, lines))
        with running_sidecar(plugins, more=TABLE) as sidecar:
            sidecar.logged(event="mcp_serving")
            yield House(sidecar, granted, private)


@pytest.mark.parametrize("mode", MODES)
async def test_each_for_node_answers_and_what_attacks_in_its_processes_reaches_nothing(node: House, mode: str) -> None:
    async with http_client(url_of(node.sidecar), mode) as client:
        for server, (tool, arguments) in READ_CALLS.items():
            assert not (await client.call_tool(tool, arguments)).is_error, server
            for outcome in await outcomes(Poisoned(node.sidecar, {}), server, 2):
                assert outcome.pop("granted") in {"EROFS", "ENOENT"}, (server, outcome)
                assert outcome.pop("dial") != "done", server
                assert outcome == {"outside": "ENOENT", "read": "ENOENT"}, server
        listed = {each.name: each for each in (await client.list_tools()).tools}
        for server in READ_CALLS:
            for tool, level in documented_levels(server).items():
                if tool in listed:
                    claimed = listed[tool].annotations
                    assert claimed is not None
                    assert claimed.read_only_hint is (level == 2), tool


async def test_each_for_node_answers_unmodified_over_stdio(sidecar: Sidecar) -> None:
    async with stdio_client(sidecar.target, MODERN) as client:
        for server, (tool, arguments) in READ_CALLS.items():
            prefix = "every_" if server == "everything" else ""
            assert not (await client.call_tool(f"{prefix}{tool}", arguments)).is_error, server


async def test_filesystem_and_memory_write_where_they_may_and_nowhere_else(node: House) -> None:
    async with http_client(url_of(node.sidecar), MODERN) as client:
        assert text_of(await client.call_tool("read_text_file", {"path": str(node.granted / "note")})) == "a note"
        # By the server's own check of paths; what its process reaches without one stands in the next test.
        assert await failure(client, "read_text_file", path=str(node.private / "key")) == "tool_error"
        written = await client.call_tool("write_file", {"path": str(node.granted / "two"), "content": "2"})
        assert (written.is_error, (node.granted / "two").read_text()) == (False, "2")
        assert await failure(client, "write_file", path=str(node.private / "two"), content="2") == "tool_error"
        assert not (await client.call_tool("create_entities", {"entities": [ENTITY]})).is_error
        graph = (await client.call_tool("read_graph", {})).structured_content
        assert [each["name"] for each in graph["entities"]] == ["hood"]
        assert error_of(await client.call_tool("delete_entities", {"entityNames": ["hood"]}))["code"] == (
            "TOOL_APPROVAL_REQUIRED"
        )
    assert sorted(each.name for each in node.private.iterdir()) == ["key"]


async def test_what_attacks_at_level_write_reaches_the_granted_folder_and_no_more(node: House) -> None:
    where = {"filesystem": {"path": str(node.granted / "three")}}
    async with http_client(url_of(node.sidecar), MODERN) as client:
        for server, (tool, arguments) in WRITE_CALLS.items():
            reading = READ_CALLS[server]
            assert not (await client.call_tool(*reading)).is_error, server
            assert not (await client.call_tool(tool, arguments | where.get(server, {}))).is_error, server
            *_, outcome = await outcomes(Poisoned(node.sidecar, {}), server, 3)
            assert outcome.pop("granted") == "done", server
            assert outcome.pop("dial") != "done", server
            assert outcome == {"outside": "ENOENT", "read": "ENOENT"}, server
    assert (node.granted / "three").read_text() == "two"
    assert sorted(each.name for each in node.private.iterdir()) == ["key"]


async def test_everything_has_every_content_progress_resources_and_prompts(node: House) -> None:
    steps: list[float] = []

    async def progress(done: float, _total: float | None, _message: str | None) -> None:
        steps.append(done)

    async with http_client(url_of(node.sidecar), LEGACY) as client:
        image = await client.call_tool("get_tiny_image", {})
        assert [each.mime_type for each in image.content if each.type == "image"] == ["image/png"]
        structured = await client.call_tool("get_structured_content", {"location": "New York"})
        assert set(structured.structured_content or {}) == {"temperature", "conditions", "humidity"}
        operation = {"duration": 0.2, "steps": 4}
        await client.call_tool("trigger_long_running_operation", operation, progress_callback=progress)
        # Of steps that come at once, as on a busy machine, the first and the last are told for certain.
        assert (steps[0], steps[-1], steps) == (1, 4, sorted(set(steps)))
        uri = (await client.list_resources()).resources[0].uri
        assert uri.startswith("fumehood://everything/")
        assert (await client.read_resource(uri)).contents[0].uri == uri
        prompts = (await client.list_prompts()).prompts
        assert all(each.name.startswith("everything/") for each in prompts)
        variables = json.loads(text_of(await client.call_tool("get_env", {})))
        assert "PATH" in variables
        assert not {"USER", "SSH_AUTH_SOCK", "PYTEST_CURRENT_TEST"} & set(variables)


async def test_thinking_keeps_its_state_from_call_to_call(node: House) -> None:
    tool, thought = READ_CALLS["sequential-thinking"]
    async with http_client(url_of(node.sidecar), MODERN) as client:
        lengths = [json.loads(text_of(await client.call_tool(tool, thought)))["thoughtHistoryLength"] for _ in range(2)]
    assert lengths[1] == lengths[0] + 1


@dataclass(frozen=True)
class PythonHouse(House):
    """Its web servers as well."""

    granted_port: int
    other_port: int


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PythonHouse]:
    """Time in a release of somebody else's and as it is, git and fetch as they are."""
    folder = tmp_path_factory.mktemp("python")
    with ExitStack() as stack:
        granted, private = stack.enter_context(folders())
        for each in (granted, private):
            make_repository(each / "repository")
        ports = [stack.enter_context(web_server()) for _ in range(2)]
        aims = json.dumps({"write": f"{granted}/new", "read": f"{private}/key", "port": ports[1]})
        commands: dict[str, Sequence[str]] = {
            "time": ["python", "server.py"],
            "git": ["mcp-server-git", "--repository", str(granted / "repository")],
            "fetch": ["mcp-server-fetch", "--ignore-robots-txt", "--allow-private-ips"],
            "plain-time": ["mcp-server-time", "--local-timezone", "Europe/Berlin"],
        }
        plugins = [
            python_plugin(folder / name, command, environment=f"AIMS = {json.dumps(aims)}")
            for name, command in commands.items()
        ]
        shutil.copy(SERVERS / "poisoned_time.py", folder / "time" / "server.py")
        state = folder / ".fumehood"
        lock_and_build(plugins, state)
        hosts = f'hosts = ["127.0.0.1:{ports[0]}"]\nallow_private = ["127.0.0.1"]\n'
        grants = [
            f'max_side_effects = "external"\nwrite = ["{granted}"]\n{hosts}',
            f'max_side_effects = "write"\nwrite = ["{granted}/repository"]\n{allowed("git_add")}',
            f'max_side_effects = "external"\n{hosts}{allowed("fetch")}side_effects = "external"\n',
            'prefix = "plain_"',
        ]
        started = running_sidecar(
            list(zip(plugins, grants, strict=True)), server=f"state_dir = {json.dumps(str(state))}", more=TABLE
        )
        sidecar = stack.enter_context(started)
        sidecar.logged(event="mcp_serving")
        yield PythonHouse(sidecar, granted, private, *ports)


@pytest.mark.parametrize("mode", MODES)
async def test_each_for_python_answers_and_reaches_what_it_was_granted_alone(python: PythonHouse, mode: str) -> None:
    mine, other = (str(each / "repository") for each in (python.granted, python.private))
    pages = [f"http://127.0.0.1:{port}/" for port in (python.granted_port, python.other_port)]
    async with http_client(url_of(python.sidecar), mode) as client:
        told = (await client.call_tool("get_current_time", {"timezone": "UTC"})).structured_content
        assert told["timezone"] == "UTC"
        outcome = json.loads(told["day_of_week"])
        assert outcome.pop("dial") != "done"
        assert outcome == {"write": "EROFS", "read": "ENOENT"}
        (python.granted / "repository" / "b.txt").write_text("b\n")
        assert "b.txt" in text_of(await client.call_tool("git_status", {"repo_path": mine}))
        assert not (await client.call_tool("git_add", {"repo_path": mine, "files": ["b.txt"]})).is_error
        assert await failure(client, "git_log", repo_path=other) == "tool_error"
        assert text_of(await client.call_tool("fetch", {"url": pages[0]})).endswith("page")
        assert await failure(client, "fetch", url=pages[1]) == "tool_error"
        assert await failure(client, "fetch", url=f"{pages[0]}to/{python.other_port}") == "tool_error"


async def test_time_answers_unmodified(python: PythonHouse) -> None:
    asked = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Kathmandu"}
    async with http_client(url_of(python.sidecar), MODERN) as client:
        told = (await client.call_tool("plain_convert_time", asked)).structured_content
    assert told["time_difference"] == "+5.75h"


async def test_program_that_a_repository_has_git_run_reaches_what_the_tools_level_reaches(python: PythonHouse) -> None:
    """`core.fsmonitor` names a program that `git status` runs: whoever writes a repository's settings has one run."""
    repository = python.granted / "repository"
    inside, outside = repository / "ran-inside", python.private / "ran-outside"
    hook = repository / "hook.sh"
    hook.write_text(f"#!/bin/sh\necho > {inside}\necho > {outside}\nexit 1\n")
    git(repository, "config", "core.fsmonitor", f"sh {hook}")
    where = {"repo_path": str(repository)}
    try:
        async with http_client(url_of(python.sidecar), MODERN) as client:
            assert "On branch main" in text_of(await client.call_tool("git_status", where))
            assert (inside.exists(), outside.exists()) == (False, False), "at level read"
            assert not (await client.call_tool("git_add", {**where, "files": ["hook.sh"]})).is_error
            assert (inside.exists(), outside.exists()) == (True, False), "at level write"
        git(repository, "status")
        assert outside.exists(), "outside, all of it works"
    finally:
        git(repository, "config", "--unset", "core.fsmonitor")


def test_outside_the_release_of_time_reaches_all_of_it(python: PythonHouse) -> None:
    aims = {"write": f"{python.private}/new", "read": f"{python.private}/key", "port": python.other_port}
    with as_plain_user():
        assert set(poisoned_time.intrude(**aims).values()) == {"done"}
