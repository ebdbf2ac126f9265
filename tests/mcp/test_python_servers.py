"""The official servers for Python, unmodified, at the levels of their annotations, each with an attack beside it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fumehood.v1 import tool_pb2

from tests.mcp.official_table import documented_levels, served_levels
from tests.mcp.reach import as_plain_user, open_folders
from tests.mcp.real_servers import lock_and_build, python_plugin
from tests.mcp.servers import poisoned_time
from tests.mcp.support import SERVERS, Caller, reason
from tests.mcp.web import web_server
from tests.sidecar import Sidecar, running_sidecar

pytestmark = pytest.mark.slow("builds environments of the official servers, some hundred wheels")

ALLOW = "permission = 'allow'"
READ, EXTERNAL = tool_pb2.SIDE_EFFECTS_READ, tool_pb2.SIDE_EFFECTS_EXTERNAL


@dataclass(frozen=True)
class Hosted:
    """A sidecar with the servers, and what they were granted and were not."""

    sidecar: Sidecar
    repository: Path
    second: Path
    writable: Path
    private: Path
    granted_port: int
    other_port: int


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    folder = tmp_path_factory.mktemp("python-servers")
    repository, second = folder / "repository", folder / "second"
    for each in (repository, second):  # plugins of a root sidecar are users of their own
        make_repository(each)
    with (
        open_folders("writable", "private") as (writable, private),
        web_server() as granted_port,
        web_server() as other_port,
    ):
        (private / "key").write_text("a key")
        make_repository(private / "repository")
        aims = json.dumps({"write": f"{writable}/new", "read": f"{private}/key", "port": other_port})
        fetch = ["mcp-server-fetch", "--ignore-robots-txt", "--allow-private-ips"]
        plugins = [
            python_plugin(folder / "time", ["mcp-server-time", "--local-timezone", "Europe/Berlin"]),
            python_plugin(folder / "poisoned", ["python", "server.py"], environment=f"AIMS = {json.dumps(aims)}"),
            python_plugin(folder / "git", ["mcp-server-git", "--repository", str(repository)]),
            python_plugin(folder / "fetch", fetch),
            python_plugin(folder / "claimed", fetch),
            python_plugin(folder / "rootless", ["mcp-server-git"]),
        ]
        (folder / "poisoned" / "server.py").write_text((SERVERS / "poisoned_time.py").read_text())
        state = folder / ".fumehood"
        lock_and_build(plugins, state)
        hosts = f'hosts = ["127.0.0.1:{granted_port}"]\nallow_private = ["127.0.0.1"]\n'
        writing = "\n".join(f"[plugin.tools.{tool}]\n{ALLOW}" for tool in ("git_add", "git_commit", "git_reset"))
        adding = f"[plugin.tools.git_add]\n{ALLOW}"
        grants = [
            "",
            f'prefix = "poisoned_"\nwrite = ["{writable}"]\nmax_side_effects = "external"\n{hosts}',
            f'max_side_effects = "write"\nwrite = ["{repository}"]\n{writing}',
            f'max_side_effects = "external"\n{hosts}[plugin.tools.fetch]\nside_effects = "external"\n{ALLOW}',
            f'prefix = "claimed_"\nmax_side_effects = "external"\n{hosts}',
            f'prefix = "rootless_"\nmax_side_effects = "write"\nwrite = ["{second}"]\n{adding}',
        ]
        server = f"state_dir = {json.dumps(str(state))}"
        with running_sidecar(list(zip(plugins, grants, strict=True)), server=server) as sidecar:
            yield Hosted(sidecar, repository, second, writable, private, granted_port, other_port)


def make_repository(folder: Path) -> None:
    """One commit, and a file that is in none. All of it is open to the user that a plugin runs as."""
    git(folder.parent, "init", "--quiet", "--initial-branch=main", str(folder))
    folder.chmod(0o777)
    for name, value in (("user.name", "Ada"), ("user.email", "ada@example.com")):
        git(folder, "config", name, value)
    (folder / "a.txt").write_text("a\n")
    git(folder, "add", "a.txt")
    git(folder, "commit", "--quiet", "--message", "the first")
    for each in [folder, *folder.rglob("*")]:
        each.chmod(each.stat().st_mode | (0o777 if each.is_dir() else 0o666))


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout  # noqa: S607


@pytest.fixture
async def caller(hosted: Hosted) -> AsyncIterator[Caller]:
    async with hosted.sidecar.channel() as channel:
        yield Caller(channel)


async def test_annotations_of_the_official_servers_for_python_come_to_their_levels(caller: Caller) -> None:
    tools = await caller.tools()
    assert {name: tool.availability.reasons for name, tool in tools.items() if not tool.availability.available} == {}
    for server, plugin, prefix in (("time", "time", ""), ("git", "git", ""), ("fetch", "claimed", "claimed_")):
        assert served_levels(tools, plugin, prefix) == documented_levels(f"mcp-server-{server}"), server
    assert tools["fetch"].definition.side_effects == EXTERNAL, "the operator says that it needs the network"


async def test_time_tells_the_time(caller: Caller) -> None:
    result = await caller.call("convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Kathmandu")
    assert json.loads(result.details_json)["time_difference"] == "+5.75h"
    assert result.sandbox.side_effects == READ


async def test_poisoned_release_of_time_tells_the_time_and_reaches_nothing(caller: Caller, hosted: Hosted) -> None:
    free = hosted.private / "new"
    aims = {"write": str(free), "read": str(hosted.private / "key"), "port": hosted.other_port}
    with as_plain_user():
        assert set(poisoned_time.intrude(**aims).values()) == {"done"}, "outside, all of it works"
    result = await caller.call("poisoned_get_current_time", timezone="UTC")
    said = json.loads(result.details_json)
    assert said["timezone"] == "UTC"
    outcome = json.loads(said["day_of_week"])
    assert outcome.pop("dial") != "done"
    assert outcome == {"write": "EROFS", "read": "ENOENT"}
    assert not (hosted.writable / "new").exists()


async def test_git_writes_at_level_write_and_reads_at_level_read(caller: Caller, hosted: Hosted) -> None:
    where = {"repo_path": str(hosted.repository)}
    (hosted.repository / "b.txt").write_text("b\n")
    assert "b.txt" in await caller.text("git_status", **where)
    await caller.text("git_add", **where, files=["b.txt"])
    await caller.text("git_commit", **where, message="the second")
    assert git(hosted.repository, "-c", "safe.directory=*", "log", "--format=%s").split("\n")[:2] == [
        "the second",
        "the first",
    ]
    result = await caller.call("git_log", **where, max_count=1)
    assert "the second" in result.content[0].text
    assert result.sandbox.side_effects == READ


async def test_program_that_a_repository_has_git_run_writes_nothing_at_level_read(
    caller: Caller, hosted: Hosted
) -> None:
    """`core.fsmonitor` names a program that `git status` runs: whoever writes a repository's settings has one run."""
    inside, outside = hosted.repository / "ran-inside", hosted.private / "ran-outside"
    hook = hosted.repository / "hook.sh"
    hook.write_text(f"#!/bin/sh\necho ran >&2\necho > {inside}\necho > {outside}\nexit 1\n")
    git(hosted.repository, "config", "core.fsmonitor", f"sh {hook}")
    where = {"repo_path": str(hosted.repository)}
    try:
        assert "On branch main" in await caller.text("git_status", **where)
        assert (inside.exists(), outside.exists()) == (False, False)
        await caller.text("git_add", **where, files=["hook.sh"])
        assert (inside.exists(), outside.exists()) == (True, False), "what may write the repository does"
        git(hosted.repository, "status")
        assert outside.exists(), "outside, all of it works"
        await caller.text("git_reset", **where)
    finally:
        git(hosted.repository, "config", "--unset", "core.fsmonitor")


async def test_git_itself_refuses_repositories_outside_of_the_one_that_it_is_given(
    caller: Caller, hosted: Hosted
) -> None:
    """Its root is the granted folder. What it lets through is held by its sandbox, as the next two show."""
    assert "the first" in await caller.text("git_log", repo_path=str(hosted.repository))
    result = await caller.call("git_log", repo_path=str(hosted.private / "repository"))
    assert reason(result) == "tool_error"
    assert "outside the allowed repository" in result.error.message


async def test_git_without_a_root_sees_and_writes_the_granted_repository_alone(caller: Caller, hosted: Hosted) -> None:
    other = hosted.private / "repository"
    (other / "d.txt").write_text("d\n")
    assert "the first" in git(other, "log"), "outside, anybody may read it"
    assert "the first" in await caller.text("rootless_git_log", repo_path=str(hosted.second))
    (hosted.second / "d.txt").write_text("d\n")
    await caller.text("rootless_git_add", repo_path=str(hosted.second), files=["d.txt"])
    log = await caller.call("rootless_git_log", repo_path=str(other))
    added = await caller.call("rootless_git_add", repo_path=str(other), files=["d.txt"])
    for result in (log, added):
        assert reason(result) == "tool_error"
        assert "outside the allowed repository" not in result.error.message, "which it would allow"
        assert str(other) in result.error.message, "what was not granted is not there"
    assert git(other, "status", "--short") == "?? d.txt\n"


async def test_git_is_led_to_no_other_repository_by_a_file_in_the_granted_one(caller: Caller, hosted: Hosted) -> None:
    """A `.git` that is a file names the folder of the repository, which the server's check of paths doesn't read."""
    own, other = hosted.repository / "own", hosted.repository / "other"
    try:
        for linked, leads_to in ((own, hosted.repository), (other, hosted.private / "repository")):
            linked.mkdir()
            (linked / ".git").write_text(f"gitdir: {leads_to}/.git\n")
            assert "the first" in git(linked, "log"), "outside, git follows it"
        assert "the first" in await caller.text("git_log", repo_path=str(own))
        result = await caller.call("git_log", repo_path=str(other))
        assert reason(result) == "tool_error"
        assert "outside the allowed repository" not in result.error.message
        assert "the first" not in str(result)
    finally:
        for linked in (own, other):
            shutil.rmtree(linked, ignore_errors=True)


async def test_fetch_reaches_granted_hosts_alone_by_itself_and_by_redirects(caller: Caller, hosted: Hosted) -> None:
    granted, other = (f"http://127.0.0.1:{port}" for port in (hosted.granted_port, hosted.other_port))
    assert (await caller.text("fetch", url=f"{granted}/")).endswith("page")
    assert (await caller.text("fetch", url=f"{granted}/to/{hosted.granted_port}")).endswith("page")
    for url in (f"{other}/", f"{granted}/to/{hosted.other_port}", "http://169.254.169.254/latest/meta-data/"):
        result = await caller.call("fetch", url=url)
        assert reason(result) == "tool_error", url
        assert "page" not in str(result.content)


async def test_fetch_as_it_claims_to_be_reads_no_network(caller: Caller, hosted: Hosted) -> None:
    result = await caller.call("claimed_fetch", url=f"http://127.0.0.1:{hosted.granted_port}/")
    assert reason(result) == "tool_error"
    assert result.sandbox.side_effects == READ


async def test_hooks_of_a_repository_are_not_run(caller: Caller, hosted: Hosted) -> None:
    """Nothing in a granted folder can be executed: a commit that needs a hook fails, and says so."""
    where = {"repo_path": str(hosted.repository)}
    hook = hosted.repository / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    (hosted.repository / "c.txt").write_text("c\n")
    await caller.text("git_add", **where, files=["c.txt"])
    try:
        result = await caller.call("git_commit", **where, message="with a hook")
        assert reason(result) == "tool_error"
        assert "pre-commit" in result.error.message
    finally:
        hook.unlink()
    await caller.text("git_commit", **where, message="without a hook")
