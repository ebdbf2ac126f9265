"""Loading: which plugins of the configuration are served, and why others are refused."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fumehood_sandbox import Level, SandboxUnavailableError
from fumehood_server.config.load import load_config
from fumehood_server.errors import PluginInvalidError, WorkerUnavailableError
from fumehood_server.model.call import CallError
from fumehood_server.model.plugin import PluginState, WorkerSpec
from fumehood_server.model.taxonomy import Code
from fumehood_server.plugins.catalog import Catalog
from fumehood_server.plugins.lock import read_lock
from fumehood_server.plugins.reader import MAX_DESCRIBES

from .support import (
    ONE,
    TWO,
    Answer,
    FakeDescribe,
    LogLines,
    catalog_of,
    cli,
    codes,
    configure,
    declared,
    executable,
    python,
    tool_toml,
)


async def test_tools_of_every_kind_are_found_and_sorted(tmp_path: Path) -> None:
    executable(tmp_path / "one", tool_toml("zip"), tool_toml("add"))
    cli(tmp_path / "two")
    python(tmp_path / "three")
    describe = FakeDescribe([declared("roll")])
    catalog = await catalog_of(tmp_path, ONE + TWO + '[[plugin]]\npath = "three"\n', describe=describe)
    assert [tool.definition.name for tool in catalog.tools] == ["add", "roll", "search", "zip"]
    assert [plugin.name for plugin in catalog.plugins] == ["one", "two", "three"]
    assert {plugin.state for plugin in catalog.plugins} == {PluginState.SERVING}
    tool = catalog.find("add")
    assert tool is not None
    assert tool.plugin == "one"
    assert catalog.find("nothing") is None
    assert catalog.plugin("nothing") is None
    (asked,) = describe.asked
    assert (asked.policy.level, asked.policy.read, asked.policy.write) == (Level.NONE, (), ())


async def test_a_plugin_that_cannot_be_read_is_refused_and_the_others_serve(tmp_path: Path) -> None:
    executable(tmp_path / "two")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/plugin.toml").write_text('[plugin]\nname = "broken"\n')
    text = ONE + TWO + '[[plugin]]\npath = "bad"\n'
    catalog = await catalog_of(tmp_path, text)
    assert [(plugin.name, plugin.state) for plugin in catalog.plugins] == [
        ("one", PluginState.REFUSED),
        ("two", PluginState.SERVING),
        ("broken", PluginState.REFUSED),
    ]
    assert codes(catalog, "one") == ["plugin_invalid"]
    assert any("`version` is missing" in reason.message for reason in catalog.plugins[2].reasons)
    assert set(read_lock(tmp_path / "fumehood.lock").plugins) == {"two"}


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (SandboxUnavailableError("userns", "forbidden", "allow them"), "sandbox_unavailable", "userns"),
        (
            WorkerUnavailableError(CallError(code=Code.TOOL_UNAVAILABLE, message="it exited")),
            "describe_failed",
            "exited",
        ),
        (
            WorkerUnavailableError(CallError(code=Code.CONFIG_SANDBOX_UNAVAILABLE, message="no userns")),
            "sandbox_unavailable",
            "no userns",
        ),
        (PluginInvalidError(Path("/x"), "speaks version 9"), "plugin_invalid", "speaks version 9"),
        (OSError(5, "gone"), "describe_failed", "gone"),
        (TimeoutError(), "describe_failed", "did not describe itself"),
    ],
)
async def test_a_plugin_that_cannot_describe_itself_is_refused(
    tmp_path: Path, error: Exception, code: str, text: str
) -> None:
    python(tmp_path / "one")
    executable(tmp_path / "two")
    catalog = await catalog_of(tmp_path, ONE + TWO, describe=FakeDescribe(error=error))
    assert codes(catalog, "one") == [code]
    assert text in catalog.plugins[0].reasons[0].message
    assert catalog.find("echo") is not None


async def test_definitions_from_code_are_checked_like_those_of_a_manifest(tmp_path: Path) -> None:
    python(tmp_path / "one")

    async def refused(*tools: object) -> str:
        catalog = await catalog_of(tmp_path, ONE, describe=FakeDescribe(tools))  # type: ignore[arg-type] - messages
        assert catalog.plugins[0].state is PluginState.REFUSED
        return " ".join(reason.message for reason in catalog.plugins[0].reasons)

    assert 'tool "Bad": `name`' in await refused(declared("Bad"))
    assert "`side_effects` is missing (declare one of" in await refused(declared("a", "UNSPECIFIED"))
    assert "is the name of two tools" in await refused(declared("a"), declared("a"))
    assert "declares no tool" in await refused()
    catalog = await catalog_of(tmp_path, ONE, describe=FakeDescribe([declared("a")]))
    assert catalog.plugins[0].state is PluginState.SERVING


async def test_the_first_of_two_plugins_with_a_name_in_common_serves(tmp_path: Path) -> None:
    executable(tmp_path / "one", tool_toml("echo"))
    executable(tmp_path / "two", tool_toml("echo"), tool_toml("other"))
    executable(tmp_path / "three", tool_toml("third"), name="one")
    catalog = await catalog_of(tmp_path, ONE + TWO + '[[plugin]]\npath = "three"\n')
    assert [plugin.state for plugin in catalog.plugins] == ["serving", "refused", "refused"]
    assert codes(catalog, "two") == ["duplicate_tool"]
    reason = catalog.plugins[1].reasons[0].message
    assert '"echo"' in reason
    assert "one serves it, two can't" in reason
    assert catalog.plugins[2].reasons[0].code == "duplicate_plugin"
    found = catalog.plugin("one")
    assert found is not None
    assert found.path == tmp_path / "one"
    assert [tool.definition.name for tool in catalog.tools] == ["echo"]
    catalog = await catalog_of(tmp_path, TWO + ONE)
    assert codes(catalog, "one") == ["duplicate_tool"]


async def test_no_more_than_two_plugins_are_described_at_once(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(6)]
    for name in names:
        python(tmp_path / name)
    running, most = 0, 0
    full = asyncio.Event()

    async def describe(spec: WorkerSpec) -> Answer:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == MAX_DESCRIBES:
            full.set()
        async with asyncio.timeout(60):
            await full.wait()
        await asyncio.sleep(0)
        running -= 1
        return Answer([declared(f"tool_{spec.plugin}")])

    text = "".join(f'[[plugin]]\npath = "{name}"\n' for name in names)
    config = load_config(configure(tmp_path, text))
    catalog = await Catalog.load(config, describe=describe, log=LogLines())
    assert most == MAX_DESCRIBES
    assert len(catalog.tools) == len(names)


async def test_each_plugin_is_one_line_of_the_log(tmp_path: Path) -> None:
    executable(tmp_path / "one")
    log = LogLines()
    config = load_config(configure(tmp_path, ONE + TWO))
    await Catalog.load(config, describe=FakeDescribe(), log=log)
    assert [(event, fields["plugin"], fields["newly_pinned"]) for event, fields in log.lines] == [
        ("plugin_loaded", "one", True),
        ("plugin_refused", "two", False),
    ]


async def test_a_thousand_tools_cost_a_listing_few_system_calls_for_each_plugin(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(100):
        tools = [
            tool_toml(f"tool_{number}_{index}", side_effects="read", extra='requires = ["read", "binary:grep"]')
            for index in range(10)
        ]
        executable(tmp_path / f"p{number}", *tools)
    text = "".join(f'[[plugin]]\npath = "p{number}"\nread = ["data"]\n' for number in range(100))
    catalog = await catalog_of(tmp_path, text)
    assert len(catalog.tools) == 1000

    calls: list[str] = []

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            calls.append(function.__name__)
            return function(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for function in (os.stat, os.access, os.scandir, os.open):
            patch.setattr(os, function.__name__, counted(function))
        scan = catalog.scan()
        available = [catalog.availability(tool, scan).available for tool in catalog.tools]
    assert all(available)
    assert 100 <= len(calls) <= 200
