"""A plugin and its tools, as their author declares them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from fumehood_sdk import arguments, signature
from fumehood_sdk.call import Call
from fumehood_sdk.context import Context
from fumehood_sdk.declaration import MAX_DESCRIPTION_CHARACTERS, MAX_SCHEMA_BYTES, Declaration
from fumehood_sdk.errors import PluginError
from fumehood_sdk.jsontext import dumps
from fumehood_sdk.output import Output
from fumehood_sdk.wire.plugin import Sent

Function = TypeVar("Function", bound=Callable[..., Any])


class Tool:
    """One tool: its declaration, its function, and what checks and writes for it."""

    interruptible = True

    __slots__ = (
        "_arguments",
        "_context_name",
        "_function",
        "_output",
        "declaration",
        "definition",
        "description",
        "input_schema_json",
        "is_async",
        "name",
        "output_schema_json",
        "sequential",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        declaration: Declaration,
        description: str | None,
        namespace: Mapping[str, Any],
    ) -> None:
        """Read the function.

        Raises:
            PluginError: it can't be a tool; the message says what to change.
        """
        self.name = declaration.name
        self.declaration = declaration
        read = signature.read(function, self.name, description, namespace)
        if len(read.description) > MAX_DESCRIPTION_CHARACTERS:
            raise PluginError(
                f"{self.name}: its description has {len(read.description)} characters; "
                f"{MAX_DESCRIPTION_CHARACTERS} are allowed"
            )
        self.description = read.description
        self.is_async = read.is_async
        self.sequential = declaration.sequential
        self._function = function
        self._context_name = read.context_name
        try:
            self._arguments = arguments.make(self.name, read.parameters, namespace)
        except Exception as error:
            raise PluginError(f"{self.name}: its parameters can't be described by a schema: {error}") from error
        try:
            self._output = Output(read.returns)
        except Exception as error:
            raise PluginError(f"{self.name}: its result can't be described by a schema: {error}") from error
        self.input_schema_json = _schema_json(self.name, self._arguments.json_schema)
        output_schema = self._output.json_schema
        self.output_schema_json = b"" if output_schema is None else _schema_json(self.name, output_schema)
        self.definition = declaration.encode(self.description, self.input_schema_json, self.output_schema_json)

    @property
    def output_annotation(self) -> Any:  # noqa: ANN401 - an annotation can be anything
        """The type of the structured output."""
        return self._output.annotation

    def prepare(self, call: Call) -> dict[str, Any]:
        """The function's keyword arguments for a call.

        Raises:
            ToolError: the arguments are wrong.
        """
        prepared = arguments.check(self._arguments, call.arguments_json)
        if self._context_name is not None:
            prepared[self._context_name] = Context(call)
        return prepared

    def invoke(self, call: Call) -> Sent:
        """Run a synchronous tool. Raises what it raises."""
        prepared = arguments.check(self._arguments, call.arguments_json)
        if self._context_name is not None:
            prepared[self._context_name] = Context(call)
        return self._output.encode(self._function(**prepared))

    async def invoke_async(self, call: Call) -> Sent:
        """Run an asynchronous tool. Raises what it raises."""
        return self._output.encode(await self._function(**self.prepare(call)))


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
        isolation: str | None = None,
        sequential: bool = False,
        limits: Mapping[str, int] | None = None,
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
            isolation: "process" or "call": what one call shares with the next. None: the sidecar's choice.
            sequential: Whether calls of this tool run one at a time.
            limits: Resource limits by name, such as {"memory_bytes": 536870912}.
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
                isolation=isolation,
                sequential=sequential,
                limits=limits,
            )
            if tool_name in self._tools:
                raise PluginError(f"plugin {self.name} has two tools named {tool_name!r}: rename one")
            self._tools[tool_name] = Tool(declared, declaration, description, namespace)
            return declared

        return declare

    def run(self) -> None:
        """Serve calls over this process's stdin and stdout until they end; then exit the process.

        For a plugin that is started as a program (`kind = "executable"`). A plugin of kind `python` is imported
        instead, and does not call this. Nothing may be printed before: stdout is the wire until this moves it away.
        """
        from fumehood_sdk.runtime.serve import end_process, serve_plugin  # noqa: PLC0415 - one under test never serves

        end_process(serve_plugin(lambda _: self))


def _schema_json(tool: str, schema: dict[str, Any]) -> bytes:
    written = dumps(schema)
    if len(written) > MAX_SCHEMA_BYTES:
        raise PluginError(f"{tool}: a schema of {len(written)} bytes is too large; {MAX_SCHEMA_BYTES} are allowed")
    return written
