"""What is wrong with a declaration is said when the plugin is imported."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from fumehood_sdk import Context, Field, Plugin, PluginError
from fumehood_sdk.tools.docstring import parse_docstring

if TYPE_CHECKING:
    from decimal import Decimal


def good(text: str) -> str:
    """Do it."""
    return text


def no_docstring(text: str) -> str:
    return text


def unannotated(text) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """Do it."""
    return str(text)


def star(*texts: str) -> str:
    """Do it."""
    return "".join(texts)


def double_star(**texts: str) -> str:
    """Do it."""
    return "".join(texts)


def positional(text: str, /) -> str:
    """Do it."""
    return text


def two_contexts(a: Context, b: Context) -> str:
    """Do it."""
    return f"{a}{b}"


def default_field(count: int = Field(ge=1)) -> int:  # type: ignore[assignment]
    """Do it."""
    return count


def stray(text: str) -> str:
    """Do it.

    Args:
        txt: What.
    """
    return text


def generator(text: str) -> Any:
    """Do it."""
    yield text


def hidden_type(amount: Decimal) -> str:
    """Do it."""
    return str(amount)


def opaque(lock: Plugin) -> str:
    """Do it."""
    return str(lock)


def opaque_result() -> Plugin:
    """Do it."""
    return Plugin("x", version="1")


def wrong_bound(count: Annotated[int, Field(pattern="x")]) -> int:
    """Do it."""
    return count


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        (good, {"side_effects": None}, "add side_effects="),
        (good, {"side_effects": "reads"}, '"none", "read", "write", "external"'),
        (good, {"isolation": "thread"}, '"process", "call"'),
        (good, {"timeout_s": 0}, "more than 0"),
        (good, {"timeout_s": 3601}, "at most 3600"),
        (good, {"requires": "read"}, "requires=['read']"),
        (good, {"requires": ["shell"]}, "binary:NAME"),
        (good, {"limits": {"memory": 1}}, '"memory_bytes"'),
        (good, {"limits": {"cpu_s": 1.5}}, "whole number"),
        (good, {"limits": {"cpu_s": True}}, "whole number"),
        (good, {"name": "Not-Good"}, "a-z, 0-9"),
        (good, {"name": "x" * 65}, "1 to 64"),
        (good, {"description": "x" * 8193}, "8192"),
        (no_docstring, {}, "docstring"),
        (unannotated, {}, "annotate it"),
        (star, {}, "name each parameter"),
        (double_star, {}, "name each parameter"),
        (positional, {}, "remove the /"),
        (two_contexts, {}, "keep one"),
        (default_field, {}, "Annotated"),
        (stray, {}, "'txt', which is no parameter"),
        (generator, {}, "ctx.update()"),
        (hidden_type, {}, "TYPE_CHECKING"),
        (opaque, {}, "its parameters can't be described"),
        (opaque_result, {}, "its result can't be described"),
        (wrong_bound, {}, "its parameters can't be described"),
    ],
)
def test_a_wrong_declaration_is_refused_with_what_to_do(
    function: Callable[..., Any], options: dict[str, Any], said: str
) -> None:
    plugin = Plugin("trial", version="1")
    with pytest.raises(PluginError) as caught:
        plugin.tool(**{"side_effects": "none", **options})(function)
    assert said in str(caught.value)
    assert not plugin.tools
    plugin.tool(side_effects="none")(good)
    assert list(plugin.tools) == ["good"]


def test_two_tools_of_one_name_are_refused() -> None:
    plugin = Plugin("trial", version="1")
    plugin.tool(side_effects="none")(good)
    with pytest.raises(PluginError, match="rename one"):
        plugin.tool(side_effects="read")(good)
    plugin.tool(side_effects="read", name="good_too")(good)


def test_the_decorator_without_parentheses_is_refused() -> None:
    plugin = Plugin("trial", version="1")
    with pytest.raises(PluginError, match="with parentheses"):
        plugin.tool(good)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [{"name": ""}, {"version": ""}, {"concurrency": 0}, {"concurrency": True}],
)
def test_a_plugin_without_name_version_or_sense_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(PluginError):
        Plugin(**{"name": "trial", "version": "1", **arguments})
    assert Plugin("trial", version="1", concurrency=1).concurrency == 1


def test_a_declared_function_stays_as_it_is() -> None:
    plugin = Plugin("trial", version="1")
    assert plugin.tool(side_effects="none")(good) is good


def test_a_docstring_gives_the_first_paragraph_and_each_parameter() -> None:
    summary, parameters = parse_docstring(
        """Find text
        in files.

        More that models need not read.

        Args:
            pattern: What to find:
                a regular expression.
            path (str): Where.
                It may be a folder.

            limit: How many.

        Returns:
            found: The places.
        """
    )
    assert summary == "Find text in files."
    assert parameters == {
        "pattern": "What to find: a regular expression.",
        "path": "Where. It may be a folder.",
        "limit": "How many.",
    }


def _many(a: int, b: str = "b", *, c: list[int], d: bool = False) -> None:
    """Do it."""


def test_what_a_decorator_wrapped_is_read_as_what_it_wraps() -> None:
    @functools.wraps(_many)
    def wrapper(*arguments: Any, **named: Any) -> None: ...

    plugin = Plugin("trial", version="1")
    plugin.tool(side_effects="none", name="wrapped")(wrapper)
    plugin.tool(side_effects="none", name="plain")(_many)
    assert plugin.tools["wrapped"].input_schema_json == plugin.tools["plain"].input_schema_json


async def _waits() -> None:
    """Do it."""


@pytest.mark.parametrize(("function", "is_async"), [(_many, False), (_waits, True)])
def test_a_coroutine_function_is_an_asynchronous_tool(function: Any, is_async: bool) -> None:
    plugin = Plugin("trial", version="1")
    plugin.tool(side_effects="none", name="it")(function)
    assert plugin.tools["it"].is_async == is_async
