"""Reloading a plugin while others serve."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from fumehood.v1 import tool_pb2
from fumehood_server.errors import RefusalReason, RefusedError
from fumehood_server.model.plugin import PluginState
from fumehood_server.plugins.lock import read_lock

from tests.loop_steps import LoopSteps, least_s, longest_step_s

from .support import (
    ONE,
    TWO,
    FakeDescribe,
    accept,
    catalog_of,
    codes,
    declared,
    executable,
    python,
    tool_toml,
)

LONGEST_STEP_S = 0.04
"""Of processor time: six times the longest on a fast machine, and half of what comparing the definitions takes."""


async def test_reload_takes_what_was_pinned_and_gives_back_the_keys_of_old_workers(tmp_path: Path) -> None:
    executable(tmp_path / "one", tool_toml("echo"))
    catalog = await catalog_of(tmp_path, ONE)
    old = catalog.find("echo")
    assert old is not None
    assert old.spec is not None
    assert (await catalog.reload("one")).unused == frozenset()
    executable(tmp_path / "one", tool_toml("echo"), tool_toml("more"))
    with pytest.raises(RefusedError) as caught:
        await catalog.reload("one")
    assert caught.value.refusal.reason is RefusalReason.RELOAD_REFUSED
    assert "more is new at level none" in caught.value.refusal.message
    assert catalog.find("more") is None
    assert catalog.plugins[0].state is PluginState.SERVING
    await accept(tmp_path / "one")
    assert (await catalog.reload("one")).unused == frozenset({old.spec.key})
    assert catalog.find("more") is not None
    with pytest.raises(RefusedError) as caught:
        await catalog.reload("absent")
    assert caught.value.refusal.reason is RefusalReason.PLUGIN_NOT_FOUND


async def test_reload_of_a_refused_plugin_says_what_is_still_wrong_and_then_takes_it(tmp_path: Path) -> None:
    catalog = await catalog_of(tmp_path, ONE)
    with pytest.raises(RefusedError, match="No such file"):
        await catalog.reload("one")
    executable(tmp_path / "one").joinpath("plugin.toml").write_text("[plugin]\n")
    with pytest.raises(RefusedError, match="`name` is missing"):
        await catalog.reload("one")
    assert "`name` is missing" in catalog.plugins[0].reasons[0].message
    executable(tmp_path / "one")
    assert (await catalog.reload("one")).unused == frozenset()
    assert catalog.find("echo") is not None
    assert "one" in read_lock(tmp_path / "fumehood.lock").plugins


async def test_a_reload_that_would_take_another_plugins_tool_is_refused(tmp_path: Path) -> None:
    executable(tmp_path / "one", tool_toml("echo"))
    executable(tmp_path / "two", tool_toml("other"))
    catalog = await catalog_of(tmp_path, ONE + TWO)
    executable(tmp_path / "two", tool_toml("echo"))
    await accept(tmp_path / "two")
    with pytest.raises(RefusedError, match="one serves it, two can't"):
        await catalog.reload("two")
    found = catalog.find("echo")
    assert found is not None
    assert found.plugin == "one"
    assert catalog.find("other") is not None


async def test_a_second_plugin_of_one_name_is_taken_once_it_is_renamed(tmp_path: Path) -> None:
    executable(tmp_path / "one", tool_toml("echo"))
    executable(tmp_path / "two", tool_toml("other"), name="one")
    catalog = await catalog_of(tmp_path, ONE + TWO)
    assert codes(catalog, f"{tmp_path}/two") == ["duplicate_plugin"]
    # Its name leads to the first, and its folder to it, which is not mended yet.
    assert (await catalog.reload("one")).plugin.path == tmp_path / "one"
    with pytest.raises(RefusedError, match="two plugins have the name"):
        await catalog.reload(f"{tmp_path}/two")
    with pytest.raises(RefusedError) as caught:
        await catalog.reload("two")
    assert caught.value.refusal.reason is RefusalReason.PLUGIN_NOT_FOUND
    executable(tmp_path / "two", tool_toml("other"), name="two")
    taken = await catalog.reload("two")
    assert (taken.plugin.name, taken.plugin.state) == ("two", PluginState.SERVING)
    assert [tool.definition.name for tool in catalog.tools] == ["echo", "other"]
    assert set(read_lock(tmp_path / "fumehood.lock").plugins) == {"one", "two"}


async def test_a_second_plugin_of_one_name_is_taken_once_the_first_is_renamed(tmp_path: Path) -> None:
    executable(tmp_path / "one", tool_toml("echo"))
    executable(tmp_path / "two", tool_toml("other"), name="one")
    catalog = await catalog_of(tmp_path, ONE + TWO)
    executable(tmp_path / "one", tool_toml("echo"), name="uno")
    renamed = await catalog.reload("one")
    assert (renamed.plugin.name, len(renamed.unused)) == ("uno", 1)
    (tmp_path / "fumehood.lock").unlink()  # "one" is pinned as the first was
    assert (await catalog.reload(f"{tmp_path}/two")).plugin.name == "one"
    assert [(plugin.name, plugin.state) for plugin in catalog.plugins] == [("uno", "serving"), ("one", "serving")]


async def test_a_name_leads_to_the_plugin_that_serves_it_wherever_it_stands(tmp_path: Path) -> None:
    executable(tmp_path / "one", tool_toml("echo"), name="same")
    executable(tmp_path / "two", tool_toml("other"), name="same")
    (tmp_path / "one/plugin.toml").rename(tmp_path / "kept.toml")
    catalog = await catalog_of(tmp_path, ONE + TWO)
    (tmp_path / "kept.toml").rename(tmp_path / "one/plugin.toml")
    with pytest.raises(RefusedError, match="two plugins have the name"):
        await catalog.reload("one")
    found = catalog.plugin("same")
    assert found is not None
    assert (found.path, found.state) == (tmp_path / "two", PluginState.SERVING)
    assert (await catalog.reload("same")).plugin.path == tmp_path / "two"


async def test_changed_definitions_take_the_loop_for_no_long_step(tmp_path: Path) -> None:
    chosen = random.Random(3)  # noqa: S311 - no secret

    def described(count: int) -> FakeDescribe:
        rule = {"type": "object", "enum": [{"v": [chosen.randrange(101) for _ in range(9_000)]}]}
        schema = json.dumps(rule, separators=(",", ":"))
        return FakeDescribe([declared(f"tool_{number}") for number in range(count)] + [_with(schema)])

    async def reloaded_s() -> float:
        python(tmp_path / "one")
        catalog = await catalog_of(tmp_path, ONE, describe=described(50))
        catalog._reader._describe = described(51)
        (tmp_path / "one" / "code.py").write_text("plugin = None\n")
        steps = LoopSteps()
        try:
            with pytest.raises(RefusedError, match="tool_50 is new"):
                await catalog.reload("one")
        finally:
            steps.handle.cancel()
        return steps.longest_s

    assert await least_s(reloaded_s) < LONGEST_STEP_S


async def test_the_patterns_of_a_plugin_are_bounded_together(tmp_path: Path) -> None:
    def with_patterns(count: int) -> FakeDescribe:
        rules = [{"type": "object", "properties": {"x": {"pattern": f"^\\pL{{{70 + n}}}$"}}} for n in range(count)]
        tools = [declared(f"tool_{number}") for number in range(count)]
        for tool, rule in zip(tools, rules, strict=True):
            tool.input_schema_json = json.dumps(rule)
        return FakeDescribe(tools)

    python(tmp_path / "one")
    python(tmp_path / "two")
    catalog = await catalog_of(tmp_path, ONE, describe=with_patterns(10))
    assert len(catalog.tools) == 10

    async def read() -> None:
        many = await catalog_of(tmp_path, TWO, describe=with_patterns(60))
        assert set(codes(many, "two")) == {"plugin_invalid"}
        assert "states together" in many.plugins[0].reasons[0].message

    assert await longest_step_s(read) < LONGEST_STEP_S


def _with(schema: str) -> tool_pb2.ToolDefinition:
    made = declared("changed")
    made.input_schema_json = schema
    return made
