"""The public names of the SDK for Fumehood plugins, imported lazily (PEP 562)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fumehood_sdk.content import Annotations, Blob, Content, Text
    from fumehood_sdk.context import Context
    from fumehood_sdk.errors import (
        Cancelled,
        HttpFailed,
        HttpRefused,
        PluginError,
        SecretRefused,
        ToolError,
        Transient,
    )
    from fumehood_sdk.http import HttpRequest, HttpResponse
    from fumehood_sdk.plugin import Plugin
    from fumehood_sdk.schema.field import Field
    from fumehood_sdk.wrapping import Wrapper, wrap

__all__ = [
    "Annotations",
    "Blob",
    "Cancelled",
    "Content",
    "Context",
    "Field",
    "HttpFailed",
    "HttpRefused",
    "HttpRequest",
    "HttpResponse",
    "Plugin",
    "PluginError",
    "SecretRefused",
    "Text",
    "ToolError",
    "Transient",
    "Wrapper",
    "wrap",
]

_MODULES = {
    "Annotations": "content",
    "Blob": "content",
    "Cancelled": "errors",
    "Content": "content",
    "Context": "context",
    "Field": "schema.field",
    "HttpFailed": "errors",
    "HttpRefused": "errors",
    "HttpRequest": "http",
    "HttpResponse": "http",
    "Plugin": "plugin",
    "PluginError": "errors",
    "SecretRefused": "errors",
    "Text": "content",
    "ToolError": "errors",
    "Transient": "errors",
    "Wrapper": "wrapping",
    "wrap": "wrapping",
}
"""The module of each public name. Imported when asked for, so that the shim of kind `cli` starts without pydantic."""


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - once for each name

    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted((*globals(), *__all__))
