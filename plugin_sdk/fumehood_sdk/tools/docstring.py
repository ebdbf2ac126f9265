"""Parses docstrings in Google's style."""

from __future__ import annotations

import inspect
import re

_SECTION = re.compile(r"(Args|Arguments|Returns|Yields|Raises|Example|Examples|Note|Notes|Attributes|Todo):\s*$")
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


def parse_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into its first paragraph, as one line, and what its `Args:` section says of each parameter."""
    lines = inspect.cleandoc(docstring).splitlines()
    summary: list[str] = []
    for line in lines:
        if not line.strip() or _SECTION.match(line):
            break
        summary.append(line.strip())
    return " ".join(summary), _arguments(lines)


def _arguments(lines: list[str]) -> dict[str, str]:
    start = next((index for index, line in enumerate(lines) if line.strip() in ("Args:", "Arguments:")), None)
    if start is None:
        return {}
    out: dict[str, str] = {}
    name = ""
    entry_indent = 0
    for line in lines[start + 1 :]:
        indent = len(line) - len(line.lstrip())
        if not line.strip():
            continue
        if indent == 0:
            break
        entry = _ENTRY.match(line.strip())
        if entry and (not name or indent <= entry_indent):
            name, entry_indent = entry[1], indent
            out[name] = entry[2].strip()
        elif name:
            out[name] = f"{out[name]} {line.strip()}".strip()
    return out
