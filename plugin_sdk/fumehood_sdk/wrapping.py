"""`wrap`: functions that run before and after the tools of a plugin, in the plugin's own process."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fumehood_sdk.errors import PluginError
from fumehood_sdk.plugin import Plugin
from fumehood_sdk.tools.tool import Tool

Changed = Mapping[str, Any] | None
Before = Callable[[str, dict[str, Any]], Changed | Awaitable[Changed]]
"""Given a tool's name and its keyword arguments, validated, the `Context` among them where it takes one. Returns others
in their place, or None to leave them. What it raises, as `ToolError`, ends the call."""
After = Callable[[str, dict[str, Any], Any], Any]
"""Given the name, the arguments that the tool ran with, and what it returned. Returns what is the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """What runs around a tool. Either may be None. `after` does not run where the tool raised."""

    before: Before | None = None
    after: After | None = None


def wrap(plugin: Plugin, *wrappers: Wrapper, tools: Iterable[str] | None = None) -> None:
    """Have wrappers run around tools that are declared by now. The last passed runs first, and ends last.

    What is wrapped again runs within: a later `wrap` is the outer one. Around an async tool functions may be async;
    around any other they may not. Arguments that `before` returns are not validated anew, and the schema of the result
    is that which the tool declares.

    Args:
        plugin: Whose tools.
        wrappers: What runs around them.
        tools: Their names. None: all.

    Raises:
        PluginError: there is no such tool, or an async function is to run around one that is not.
    """
    names = [*plugin.tools] if tools is None else [*tools]
    for name in names:
        if name not in plugin.tools:
            known = ", ".join(plugin.tools) or "none so far: wrap after declaring them"
            raise PluginError(f"plugin {plugin.name} has no tool {name!r} to wrap; it has {known}")
        for wrapper in wrappers:
            _check(plugin.tools[name], wrapper)
    for name in names:
        for wrapper in wrappers:
            _wrap(plugin.tools[name], wrapper)


def _check(tool: Tool, wrapper: Wrapper) -> None:
    if type(wrapper) is not Wrapper:
        raise PluginError(f"wrap takes Wrapper(before=…, after=…), not {wrapper!r}")
    if tool.is_async:
        return
    for what in ("before", "after"):
        if inspect.iscoroutinefunction(getattr(wrapper, what)):
            raise PluginError(f"{tool.name} is no async tool: `{what}` of its wrapper can't be async either")


def _wrap(tool: Tool, wrapper: Wrapper) -> None:
    before, after, name = wrapper.before, wrapper.after, tool.name

    def around(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(**arguments: Any) -> Any:  # noqa: ANN401 - the tool's own
            if before is not None:
                arguments = _arguments(before(name, arguments), arguments)
            result = function(**arguments)
            return result if after is None else after(name, arguments, result)

        return run

    def around_async(function: Callable[..., Any]) -> Callable[..., Any]:
        async def run(**arguments: Any) -> Any:  # noqa: ANN401 - likewise
            if before is not None:
                arguments = _arguments(await _settled(before(name, arguments)), arguments)
            result = await function(**arguments)
            return result if after is None else await _settled(after(name, arguments, result))

        return run

    tool.wrap_function(around_async if tool.is_async else around)


def _arguments(changed: Any, arguments: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - an author's function returned it
    return arguments if changed is None else dict(changed)


async def _settled(value: Any) -> Any:  # noqa: ANN401 - likewise
    return await value if inspect.isawaitable(value) else value
