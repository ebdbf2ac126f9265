"""Functions of the author's that run around tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from fumehood_sdk import Context, Plugin, PluginError, ToolError, Wrapper, wrap
from fumehood_sdk.testing import ToolTester


def made() -> Plugin:
    plugin = Plugin("trial", version="1")

    @plugin.tool(side_effects="none")
    def say(text: str, ctx: Context) -> str:
        """Say it."""
        ctx.update(f"saying {text}")
        return text

    @plugin.tool(side_effects="none")
    async def say_later(text: str) -> str:
        """Say it."""
        return text

    return plugin


def adds(letter: str, order: list[str] | None = None) -> Wrapper:
    """Puts a letter at the end of the argument, and one at the start of the result."""

    def before(_tool: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
        if order is not None:
            order.append(letter)
        return {**arguments, "text": arguments["text"] + letter}

    def after(_tool: str, _arguments: dict[str, Any], result: Any) -> Any:
        if order is not None:
            order.append(letter.upper())
        return letter.upper() + result

    return Wrapper(before=before, after=after)


@pytest.mark.parametrize("tool", ["say", "say_later"])
def test_the_last_passed_runs_first_and_a_later_wrap_around_all(tool: str) -> None:
    plugin, order = made(), list[str]()
    definitions = plugin.definitions()
    wrap(plugin, adds("a", order), adds("b", order))
    wrap(plugin, adds("c", order), tools=[tool])
    result = ToolTester(plugin).call(tool, text=".")
    assert result.details == "CBA.cba"
    assert order == ["c", "b", "a", "A", "B", "C"]
    assert plugin.definitions() == definitions
    other = "say" if tool == "say_later" else "say_later"
    assert ToolTester(plugin).call(other, text=".").details == "BA.ba", "it was not named the second time"


def test_a_wrapper_refuses_sees_the_context_and_leaves_what_it_does_not_change() -> None:
    plugin = made()

    def before(tool: str, arguments: dict[str, Any]) -> None:
        if arguments["text"] == "no":
            raise ToolError(f"not by {tool}")
        arguments["ctx"].update("seen")

    wrap(plugin, Wrapper(before=before), tools=["say"])
    assert ToolTester(plugin).call("say", text="yes").details == "yes"
    assert [each.message for each in ToolTester(plugin).call("say", text="yes").updates] == ["seen", "saying yes"]
    refused = ToolTester(plugin).call("say", text="no")
    assert refused.error is not None
    assert refused.error.message == "not by say"


def test_around_async_tools_functions_may_be_async() -> None:
    plugin = made()

    async def before(_tool: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
        return {"text": arguments["text"] * 2}

    async def after(_tool: str, _arguments: dict[str, Any], result: Any) -> Any:
        return f"{result}!"

    wrap(plugin, Wrapper(before=before, after=after), tools=["say_later"])
    assert ToolTester(plugin).call("say_later", text="a").details == "aa!"
    with pytest.raises(PluginError, match="say is no async tool: `before`"):
        wrap(plugin, Wrapper(before=before))
    with pytest.raises(PluginError, match="no tool 'shout' to wrap; it has say, say_later"):
        wrap(plugin, adds("a"), tools=["shout"])
    assert ToolTester(plugin).call("say", text="a").details == "a", "what is refused has changed nothing"
