"""Reads the signature of a tool's function: parameters, context, return type."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from fumehood_sdk.context import Context
from fumehood_sdk.errors import PluginError
from fumehood_sdk.schema.field import Field
from fumehood_sdk.schema.parameter import NO_DEFAULT, Parameter
from fumehood_sdk.tools.docstring import parse_docstring


class Signature:
    """Parameters, context, description and return type of a tool's function."""

    __slots__ = ("context_name", "description", "is_async", "parameters", "returns")

    def __init__(
        self,
        *,
        parameters: list[Parameter],
        context_name: str | None,
        description: str,
        returns: object,
        is_async: bool,
    ) -> None:
        self.parameters = parameters
        self.context_name = context_name
        """The parameter that takes the call's `Context`. None: none does."""
        self.description = description
        self.returns = returns
        """The return annotation; `Any` when there is none."""
        self.is_async = is_async


def read_signature(
    function: Callable[..., Any], tool: str, description: str | None, namespace: Mapping[str, Any]
) -> Signature:
    """Read a function.

    Args:
        function: The function.
        tool: Its name as a tool, for messages.
        description: Stands in for the docstring's first paragraph.
        namespace: Names that string annotations may use beside the function's globals.

    Raises:
        PluginError: the function can't be a tool; the message says what to change.
    """
    defaults = _defaults(function, tool)
    summary, explained = parse_docstring(function.__doc__ or "")
    if not (description or summary):
        raise PluginError(f"{tool} has no docstring: its first paragraph tells the model what the tool does")
    hints = _hints(function, tool, namespace)
    parameters: list[Parameter] = []
    context_name: str | None = None
    for name, default in defaults.items():
        if name not in hints:
            raise PluginError(f"{tool}: parameter {name!r} has no type: annotate it, for example {name}: str")
        if hints[name] is Context:
            if context_name is not None:
                raise PluginError(f"{tool}: {name!r} is a second parameter of type Context: keep one")
            context_name = name
            continue
        if isinstance(default, Field):
            raise PluginError(
                f"{tool}: put what Field says of {name!r} into its type: {name}: Annotated[..., Field(...)]"
            )
        parameters.append(Parameter(name, hints[name], default, explained.get(name, "")))
    stray = sorted(set(explained) - set(defaults))
    if stray:
        raise PluginError(f"{tool}: its docstring's Args: tells of {stray[0]!r}, which is no parameter")
    return Signature(
        parameters=parameters,
        context_name=context_name,
        description=description or summary,
        returns=hints.get("return", Any),
        is_async=inspect.iscoroutinefunction(function),
    )


def _defaults(function: Callable[..., Any], tool: str) -> dict[str, Any]:
    """The parameters by name, with their defaults."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise PluginError(f"{tool} is a generator: return one value, and use ctx.update() for what comes before it")
    defaults = {}
    for name, parameter in inspect.signature(function).parameters.items():
        _check_kind(tool, parameter)
        defaults[name] = NO_DEFAULT if parameter.default is parameter.empty else parameter.default
    return defaults


def _hints(function: Callable[..., Any], tool: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, localns=dict(namespace), include_extras=True)
    except NameError as error:
        raise PluginError(
            f"{tool}: the annotation {error.name!r} is not known when the plugin runs: "
            "import it outside of `if TYPE_CHECKING:`"
        ) from error
    except (TypeError, SyntaxError) as error:
        raise PluginError(f"{tool}: its annotations can't be read: {error}") from error


def _check_kind(tool: str, parameter: inspect.Parameter) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise PluginError(f"{tool}: {parameter} can't be described by a schema: name each parameter")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise PluginError(
            f"{tool}: parameter {parameter.name!r} is positional only: arguments go by name, remove the /"
        )
