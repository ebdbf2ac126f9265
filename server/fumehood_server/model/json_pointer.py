"""Steps of JSON pointers (RFC 6901, section 3)."""

from __future__ import annotations


def escaped(name: str) -> str:
    """A name as a step of a pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def unescaped(step: str) -> str:
    """The name that a step of a pointer stands for."""
    return step.replace("~1", "/").replace("~0", "~")
