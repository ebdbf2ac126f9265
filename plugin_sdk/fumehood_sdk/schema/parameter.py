"""One parameter of a tool's function."""

from __future__ import annotations

from typing import Any

NO_DEFAULT: Any = object()
"""Stands for the default of a parameter without one."""


class Parameter:
    """One argument of a tool."""

    __slots__ = ("annotation", "default", "description", "has_default", "name")

    def __init__(self, name: str, annotation: object, default: object, description: str) -> None:
        self.name = name
        self.annotation = annotation
        self.has_default = default is not NO_DEFAULT
        self.default = default
        self.description = description
