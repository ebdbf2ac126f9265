"""Prefixes and aliases: what callers know tools by, while plugins, pins and grants keep their own names."""

from __future__ import annotations

from pathlib import Path

import pytest
from fumehood_server.config.load import load_config
from fumehood_server.errors import ConfigError
from fumehood_server.plugins.lock import read_lock

from tests.cli.command import fumehood
from tests.cli.wheels import plugin_files
from tests.plugins.support import ONE, TWO, catalog_of, codes, configure, executable, tool_toml
from tests.sidecar import running_sidecar


async def test_a_prefix_or_an_alias_lets_two_plugins_have_a_tool_of_one_name(tmp_path: Path) -> None:
    executable(tmp_path / "one", tool_toml("find"), tool_toml("echo"))
    executable(tmp_path / "two", tool_toml("find"), tool_toml("show"))
    plain = await catalog_of(tmp_path, ONE + TWO)
    assert codes(plain, "two") == ["duplicate_tool"]
    prefixed = await catalog_of(tmp_path, ONE + TWO + 'prefix = "two_"\n[plugin.tools.show]\nalias = "shown"\n')
    assert [(tool.name, tool.definition.name, tool.plugin) for tool in prefixed.tools] == [
        ("echo", "echo", "one"),
        ("find", "find", "one"),
        ("shown", "show", "two"),
        ("two_find", "find", "two"),
    ]
    found = prefixed.find("two_find")
    assert found is not None
    assert prefixed.availability(found, prefixed.scan()).reasons == ()
    assert prefixed.find("show") is prefixed.find("two_show") is None
    assert [tool.name for tool in read_lock(tmp_path / "fumehood.lock").plugins["two"].tools] == ["find", "show"]


async def test_names_stay_unique_and_valid_also_among_the_tools_of_one_plugin(tmp_path: Path) -> None:
    executable(tmp_path / "one", tool_toml("find"), tool_toml("echo"))
    executable(tmp_path / "two", tool_toml("show"))
    alias = '[plugin.tools.{}]\nalias = "{}"\n'
    for text, expected in (
        (ONE + alias.format("find", "echo"), ["duplicate_tool"]),
        (ONE + 'prefix = "' + "p" * 62 + '"\n', ["name_invalid", "name_invalid"]),
        (ONE + alias.format("find", "echo") + alias.format("echo", "find"), []),
    ):
        assert codes(await catalog_of(tmp_path, text), "one") == expected
    taken = await catalog_of(tmp_path, ONE + TWO + alias.format("show", "find"))
    assert codes(taken, "two") == ["duplicate_tool"]


def test_what_can_not_stand_in_a_tool_s_name_is_refused_with_its_line(tmp_path: Path) -> None:
    for line in ('prefix = "X_"', 'prefix = ""', "[plugin.tools.a]\nalias = 'a b'"):
        configure(tmp_path, ONE + line + "\n")
        with pytest.raises(ConfigError, match="can't stand in a tool's name") as refused:
            load_config(tmp_path / "fumehood.toml")
        assert refused.value.line > 0


def test_a_plugin_is_called_by_its_own_name_and_listings_tell_both(tmp_path: Path) -> None:
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        for name, text in plugin_files().items():
            (folder / name).write_text(text.replace('"greets"', f'"{folder.name}"').replace("Hello", folder.name))
    prefixed = (tmp_path / "two", 'prefix = "two_"\n[plugin.tools.greet_by_name]\nalias = "salute"\n')
    with running_sidecar([tmp_path / "one", prefixed]) as sidecar:
        called = [fumehood("call", name, address=sidecar.target).stdout for name in ("greet_by_name", "salute")]
        listed = fumehood("tools", "--json", address=sidecar.target).json["tools"]
        shown = fumehood("tools", "salute", address=sidecar.target).stdout
    assert called == ["one, you\n", "two, you\n"]
    names = [(tool["name"], tool["declared_name"], tool["plugin"]) for tool in listed]
    assert names == [("greet_by_name", "greet_by_name", "one"), ("salute", "greet_by_name", "two")]
    assert "which calls it greet_by_name" in shown
