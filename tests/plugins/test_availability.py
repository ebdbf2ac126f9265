from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from types import FrameType

import pytest
from fumehood_server.config.load import load_config
from fumehood_server.config.mounts import MountTable
from fumehood_server.model.plugin import PluginState
from fumehood_server.model.tool import Reason
from fumehood_server.plugins import program_places
from fumehood_server.plugins.catalog import Catalog
from fumehood_server.plugins.missing_programs import LOOK_INTERVAL_S, MissingPrograms
from fumehood_server.plugins.store import LiveFolders, PluginStore

from .support import FakeDescribe, LogLines, catalog_of, cli, configure, executable, tool_toml

ONE = '[[plugin]]\npath = "one"\n'
ALL = 'max_side_effects = "write"\nread = ["data"]\nwrite = ["notes"]\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("data", "notes"):
        (tmp_path / name).mkdir()
    return tmp_path


def reasons(catalog: Catalog, tool: str) -> list[str]:
    scan = catalog.scan()
    found = catalog.find(tool)
    assert found is not None
    availability = catalog.availability(found, scan)
    assert availability.available == (not availability.reasons)
    return [reason.code for reason in availability.reasons]


@pytest.mark.parametrize(
    ("tool", "grants", "expected"),
    [
        (tool_toml("t", side_effects="read"), "", []),
        (tool_toml("t", side_effects="write"), "", ["level_not_granted"]),
        (tool_toml("t", side_effects="write"), 'max_side_effects = "write"\n', []),
        (tool_toml("t", side_effects="read"), 'max_side_effects = "none"\n', ["level_not_granted"]),
        (tool_toml("t", side_effects="external"), ALL, ["level_not_granted"]),
        (tool_toml("t", side_effects="external"), ALL.replace('"write"\n', '"external"\n', 1), []),
        (tool_toml("t", side_effects="read", extra='requires = ["read"]'), "", ["grant_missing"]),
        (tool_toml("t", side_effects="read", extra='requires = ["read"]'), 'read = ["data"]\n', []),
        (tool_toml("t", side_effects="read", extra='requires = ["read"]'), 'write = ["notes"]\n', ["grant_missing"]),
        (tool_toml("t", side_effects="write", extra='requires = ["read", "write"]'), ALL, []),
        (
            tool_toml("t", side_effects="write", extra='requires = ["write"]'),
            'max_side_effects = "write"\nread = ["data"]\n',
            ["grant_missing"],
        ),
        (
            tool_toml("t", side_effects="write", extra='requires = ["read"]'),
            'max_side_effects = "write"\nwrite = ["notes"]\n',
            [],
        ),
        (
            tool_toml("t", side_effects="read", extra='requires = ["host:a.example:1"]'),
            ALL,
            ["host_not_granted"],
        ),
        (
            tool_toml("t", side_effects="read", extra='requires = ["host:a.example:1"]'),
            ALL + 'hosts = ["A.example:1"]\n',
            [],
        ),
        (
            tool_toml("t", side_effects="read", extra='requires = ["host:a.example:1"]'),
            ALL + 'hosts = ["a.example:1"]\ndeny_hosts = ["a.example"]\n',
            ["host_not_granted"],
        ),
        (
            tool_toml("t", side_effects="read", extra='requires = ["host:a.b.example:1"]'),
            ALL + 'hosts = ["*.b.example:1"]\n',
            [],
        ),
        (
            tool_toml("t", side_effects="external", extra='requires = ["proxy"]'),
            ALL.replace('"write"\n', '"external"\n', 1),
            ["host_not_granted"],
        ),
        (tool_toml("t", extra='requires = ["secret:KEY"]'), ALL, ["secret_not_granted"]),
        (tool_toml("t", extra='requires = ["binary:grep"]'), "", []),
        (tool_toml("t", extra='requires = ["binary:no-such-program"]'), "", ["binary_missing"]),
        (tool_toml("t", extra='isolation = "process"'), "", []),
        (tool_toml("t", extra='isolation = "call"'), "", []),
    ],
)
async def test_a_tool_that_asks_for_more_than_it_gets_is_listed_with_the_reason(
    folder: Path, tool: str, grants: str, expected: list[str]
) -> None:
    executable(folder / "one", tool, tool_toml("control"))
    catalog = await catalog_of(folder, ONE + grants)
    assert reasons(catalog, "t") == expected
    assert reasons(catalog, "control") == []


async def test_a_plugin_of_which_no_tool_can_run_says_why(folder: Path) -> None:
    executable(folder / "one", tool_toml("t", side_effects="write"))
    catalog = await catalog_of(folder, ONE)
    assert catalog.plugins[0].state is PluginState.UNAVAILABLE
    (reason,) = catalog.plugins[0].reasons
    assert reason.code == "level_not_granted"
    assert 't declares the level "write", and its plugin is granted "read"' in reason.message
    assert reason.remedy == 'max_side_effects = "write" in its [[plugin]]'


async def test_a_granted_path_that_goes_takes_only_the_tools_that_use_it(folder: Path) -> None:
    executable(folder / "one", *(tool_toml(f"at_{level}", side_effects=level) for level in ("none", "read", "write")))
    catalog = await catalog_of(folder, ONE + ALL)
    assert [reasons(catalog, f"at_{level}") for level in ("none", "read", "write")] == [[], [], []]
    (folder / "notes").rmdir()
    assert [reasons(catalog, f"at_{level}") for level in ("none", "read", "write")] == [[], [], ["grant_path_missing"]]
    (folder / "data").rmdir()
    assert [reasons(catalog, f"at_{level}") for level in ("none", "read")] == [[], ["grant_path_missing"]]
    (folder / "notes").mkdir()
    (folder / "data").mkdir()
    assert reasons(catalog, "at_write") == []


async def test_what_happens_to_the_authors_folder_changes_no_listing(folder: Path) -> None:
    executable(folder / "one", tool_toml("t"))
    catalog = await catalog_of(folder, ONE)
    (folder / "one/plugin.toml").write_text("[plugin]\n")
    (folder / "one/run").unlink()
    assert reasons(catalog, "t") == []
    shutil.rmtree(folder / "one")
    assert reasons(catalog, "t") == []


async def test_a_copy_that_goes_takes_its_tools_and_no_others(folder: Path) -> None:
    executable(folder / "one", tool_toml("t"))
    executable(folder / "two", tool_toml("other"))
    catalog = await catalog_of(folder, ONE + '[[plugin]]\npath = "two"\n')
    tool = catalog.find("t")
    assert tool is not None
    assert tool.spec is not None
    copies = PluginStore(folder / ".fumehood/plugins")
    shutil.rmtree(copies.path(tool.spec.plugin_digest))
    assert reasons(catalog, "t") == ["copy_damaged"]
    assert reasons(catalog, "other") == []
    await catalog.reload("one")
    assert reasons(catalog, "t") == []


async def test_a_folder_that_is_served_itself_is_no_damaged_state_dir(folder: Path) -> None:
    executable(folder / "one", tool_toml("t"))
    catalog = await Catalog.load(
        load_config(configure(folder, ONE)), describe=FakeDescribe(), sources=LiveFolders(), log=LogLines()
    )
    tool = catalog.find("t")
    assert tool is not None
    assert tool.spec is not None
    assert await catalog.verify(tool.spec) is None
    (folder / "one/run").write_text("")
    changed = await catalog.verify(tool.spec)
    shutil.rmtree(folder / "one")
    gone = await catalog.verify(tool.spec)
    for reason in (changed, gone, *catalog.availability(tool, catalog.scan()).reasons):
        assert reason is not None
        assert "state_dir" not in reason.remedy
        assert reason.message.startswith("one changed since it was read: ")


async def test_a_missing_binary_takes_a_cli_tool_out_until_it_is_installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binaries = folder / "elsewhere/bin"
    binaries.mkdir(parents=True)
    monkeypatch.setenv("PATH", str(binaries), prepend=":")
    cli(folder / "one", binary="fumehood-test-tool")
    cli(folder / "two", tool_toml("control", extra="argv = []"))
    catalog = await catalog_of(folder, ONE + '[[plugin]]\npath = "two"\n')
    assert reasons(catalog, "search") == ["binary_missing"]
    assert reasons(catalog, "control") == []
    assert catalog.plugins[0].state is PluginState.UNAVAILABLE
    shutil.copy("/bin/true", binaries / "fumehood-test-tool")
    assert reasons(catalog, "search") == ["binary_missing"]
    await catalog.look_for_programs()
    assert reasons(catalog, "search") == []
    assert catalog.plugins[0].state is PluginState.SERVING
    tool = catalog.find("search")
    assert tool is not None
    assert tool.spec is not None
    (binaries / "fumehood-test-tool").unlink()
    assert reasons(catalog, "search") == ["binary_missing"]


async def test_a_program_that_a_plugin_may_change_is_not_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binaries = folder / "tools/v1/bin"
    (folder / "tools/v1/lib").mkdir(parents=True)
    binaries.mkdir()
    monkeypatch.setenv("PATH", str(binaries), prepend=":")
    shutil.copy("/bin/true", binaries / "fumehood-test-tool")
    cli(folder / "one", binary="fumehood-test-tool")
    two = '[[plugin]]\npath = "two"\nmax_side_effects = "write"\nwrite = ["{}"]\n'
    executable(folder / "two", tool_toml("other"))
    # The folder of the program itself is refused with the configuration, since PATH names it.
    catalog = await catalog_of(folder, ONE + two.format("tools/v1/lib"))
    assert reasons(catalog, "search") == ["program_writable"]
    assert reasons(catalog, "other") == []
    catalog = await catalog_of(folder, ONE + two.format("notes"))
    assert reasons(catalog, "search") == []
    tools = folder / "tools/v1"
    bound = f"7 1 8:1 {tools}/lib {folder}/notes rw - ext4 /dev/sda1 rw\n"
    table = MountTable(f"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n{bound}".encode())
    monkeypatch.setattr(program_places, "read_mounts", lambda: table)
    catalog = await catalog_of(folder, ONE + two.format("notes"))
    assert reasons(catalog, "search") == ["program_writable"], "one folder at two places"


async def test_a_call_finds_a_program_that_was_installed_since(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binaries = folder / "elsewhere/bin"
    binaries.mkdir(parents=True)
    monkeypatch.setenv("PATH", str(binaries), prepend=":")
    cli(folder / "one", binary="fumehood-test-tool")
    catalog = await catalog_of(folder, ONE)
    tool = catalog.find("search")
    assert tool is not None
    assert tool.spec is None
    shutil.copy("/bin/true", binaries / "fumehood-test-tool")
    await catalog.look_for_programs()
    tool = catalog.find("search")
    assert tool is not None
    assert tool.spec is not None


async def test_one_look_is_for_all_who_ask_within_a_second(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binaries = folder / "elsewhere/bin"
    binaries.mkdir(parents=True)
    monkeypatch.setenv("PATH", str(binaries), prepend=":")
    cli(folder / "one", binary="fumehood-test-tool")
    catalog = await catalog_of(folder, ONE)
    now = 0.0
    missing = MissingPrograms(lambda: now)
    waiting = catalog._index.waiting
    looks = 0

    def counted() -> tuple[object, ...]:
        nonlocal looks
        looks += 1
        return waiting

    async def look() -> int:
        return len(await missing.look(catalog._config, counted))  # type: ignore[arg-type] # counted as well

    assert await asyncio.gather(*(look() for _ in range(40))) == [0] * 40
    shutil.copy("/bin/true", binaries / "fumehood-test-tool")
    assert (await look(), looks) == (0, 1)
    now = LOOK_INTERVAL_S
    assert (await look(), looks) == (1, 2)


async def test_no_listing_registers_a_plugin_on_the_loop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binaries = folder / "elsewhere/bin"
    binaries.mkdir(parents=True)
    monkeypatch.setenv("PATH", str(binaries), prepend=":")
    cli(folder / "one", binary="fumehood-test-tool")
    catalog = await catalog_of(folder, ONE)
    called: set[str] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add(frame.f_code.co_name)

    shutil.copy("/bin/true", binaries / "fumehood-test-tool")
    sys.setprofile(profile)
    try:
        catalog.scan()
        catalog.find("search")
        await catalog.look_for_programs()
    finally:
        sys.setprofile(None)
    assert "register" not in called
    assert reasons(catalog, "search") == []


async def test_a_machine_that_cannot_sandbox_has_no_tool_available(folder: Path) -> None:
    executable(folder / "one", tool_toml("t"))
    reason = Reason("sandbox_unavailable", "userns: forbidden", "allow them")
    catalog = await catalog_of(folder, ONE, sandbox=reason)
    found = catalog.find("t")
    assert found is not None
    assert catalog.availability(found, catalog.scan()).reasons == (reason,)
    catalog = await catalog_of(folder, ONE)
    assert reasons(catalog, "t") == []


async def test_a_tool_of_before_a_reload_is_not_called_available(folder: Path) -> None:
    executable(folder / "one", tool_toml("t"))
    catalog = await catalog_of(folder, ONE)
    old = catalog.find("t")
    assert old is not None
    await catalog.reload("one")
    assert [each.code for each in catalog.availability(old, catalog.scan()).reasons] == ["plugin_changed"]
    assert reasons(catalog, "t") == []


async def test_an_empty_configuration_is_an_empty_catalog(folder: Path) -> None:
    configure(folder, "")
    catalog = await catalog_of(folder, "")
    assert (catalog.tools, catalog.plugins) == ((), ())
