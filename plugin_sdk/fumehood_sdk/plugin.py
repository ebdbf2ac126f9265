"""`Plugin`: a plugin and its tools, as their author declares them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from fumehood_sdk.errors import PluginError
from fumehood_sdk.tools.declaration import Declaration
from fumehood_sdk.tools.preparation import Prepare
from fumehood_sdk.tools.tool import Tool

Function = TypeVar("Function", bound=Callable[..., Any])


class Plugin:
    """A plugin. Make one at the top of a module, and declare tools with `@plugin.tool(...)`."""

    def __init__(self, name: str, *, version: str, concurrency: int | None = None) -> None:
        """Name the plugin as its plugin.toml does.

        Args:
            name: The plugin's name.
            version: The plugin's version.
            concurrency: Most calls at a time in one process. None: as many as the sidecar offers.

        Raises:
            PluginError: an argument is wrong.
        """
        if not name:
            raise PluginError('a plugin needs the name that its plugin.toml gives it: Plugin("dice", version="1.0.0")')
        if type(version) is not str or not version:
            raise PluginError(f'plugin {name} needs a version, a string such as "1.0.0"')
        if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
            raise PluginError(f"plugin {name}: concurrency={concurrency!r} must be a whole number above 0")
        self.name = name
        self.version = version
        self.concurrency = concurrency
        self._tools: dict[str, Tool] = {}

    def __repr__(self) -> str:
        return f"Plugin({self.name!r}, version={self.version!r})"

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that were declared, by name, in the order of their declaration."""
        return self._tools

    def definitions(self) -> list[bytes]:
        """An encoded `ToolDefinition` of fumehood/v1/tool.proto for each tool."""
        return [tool.definition for tool in self._tools.values()]

    def tool(
        self,
        function: None = None,
        /,
        *,
        side_effects: str | None = None,
        idempotent: bool = False,
        requires: Iterable[str] = (),
        timeout_s: float | None = None,
        idle_timeout_s: float | None = None,
        isolation: str | None = None,
        sequential: bool = False,
        limits: Mapping[str, int] | None = None,
        prepare_arguments: Prepare | None = None,
        title: str = "",
        name: str | None = None,
        description: str | None = None,
    ) -> Callable[[Function], Function]:
        """Declare a function as a tool. The function itself stays as it is.

        The docstring's first paragraph tells what the tool does; its `Args:` section, in Google's style, what each
        parameter is. Types make the schemas of arguments and result. A parameter annotated `Context` gets the call's.

        Args:
            function: Never given: it catches `@plugin.tool` without its parentheses.
            side_effects: "none", "read", "write" or "external": what the tool's process is held to. Required.
            idempotent: Whether running a call twice leaves the world as running it once does.
            requires: What the tool can't run without: "read", "write", "proxy", "binary:NAME", "host:NAME:PORT",
                "secret:NAME".
            timeout_s: The longest that one call may run, at most 3,600. None: 30.
            idle_timeout_s: The longest that one call may go on without `ctx.update`. None: nothing bounds that.
            isolation: "process" or "call": what one call shares with the next. None: "call", where the plugin's import
                can be forked.
            sequential: Whether calls of this tool run one at a time.
            limits: Resource limits by name, such as {"memory_bytes": 536870912}.
            prepare_arguments: Takes what a caller sent, read from its JSON, most often a dict, and returns what the
                tool's schema asks for, or raises `ToolError`. It accepts what models send instead: a parameter's former
                name, JSON as text, another unit. It runs before the call is validated and permitted, in a process of
                level "none" without the tool's grants, for 10 s at most, and must make the same of the same always.
            title: A short name for people.
            name: The tool's name. None: the function's.
            description: What the tool does. None: the docstring's first paragraph.

        Raises:
            PluginError: something of it is wrong; the message says what to change.
        """
        if function is not None:
            raise PluginError('write @plugin.tool(side_effects="..."), with parentheses: a level must be declared')
        namespace = sys._getframe(1).f_locals  # noqa: SLF001 - string annotations may name what the caller defined

        def declare(declared: Function) -> Function:
            tool_name = name if name is not None else getattr(declared, "__name__", "")
            declaration = Declaration(
                name=tool_name,
                title=title,
                side_effects=side_effects,
                idempotent=idempotent,
                requires=requires,
                timeout_s=timeout_s,
                idle_timeout_s=idle_timeout_s,
                isolation=isolation,
                sequential=sequential,
                limits=limits,
                prepares_arguments=prepare_arguments is not None,
            )
            if tool_name in self._tools:
                raise PluginError(f"plugin {self.name} has two tools named {tool_name!r}: rename one")
            self._tools[tool_name] = Tool(declared, declaration, description, namespace, prepare_arguments)
            return declared

        return declare

    def run(self) -> None:
        """Serve calls over this process's stdin and stdout until they end; then exit the process.

        For a plugin that is started as a program (`kind = "executable"`). A plugin of kind `python` is imported
        instead, and does not call this. Nothing may be printed before: stdout is the wire until this moves it away.
        """
        from fumehood_sdk.runtime.serve import exit_process, serve_plugin  # noqa: PLC0415 - one under test never serves

        exit_process(serve_plugin(lambda _: self))
