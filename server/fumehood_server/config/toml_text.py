"""Writes TOML: its strings."""

from __future__ import annotations

import json


def toml_string(text: str) -> str:
    """A TOML basic string. JSON's strings are those, bar DEL, which TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
