"""Pages are wrapped at 100 columns, as far as prose goes."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
COLUMNS = 100
DISTRIBUTIONS = [pyproject.parent for pyproject in ROOT.glob("*/pyproject.toml")]
_WORD = re.compile(r"[^\s`]*`[^`]*`[^\s`]*|\S+")
"""Code in a sentence is one word: it isn't broken."""


def too_long(page: Path) -> list[str]:
    """Lines of prose that could have been broken: no code, no table, no link's target."""
    found, fenced = [], False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        is_prose = not fenced and not line.startswith(("|", "#", "    ", "["))
        breakable = max(map(len, _WORD.findall(line)), default=0) < COLUMNS // 2
        if is_prose and breakable and len(line) > COLUMNS:
            found.append(f"{page.relative_to(ROOT)}:{number}")
    return found


def test_prose_is_wrapped() -> None:
    folders = (ROOT, ROOT / "docs", *(ROOT / "docs").glob("*/"), *ROOT.glob("examples/*/*/"), *DISTRIBUTIONS)
    pages = [page for folder in folders for page in folder.glob("*.md")]
    assert len(pages) > 20
    assert [line for page in pages for line in too_long(page)] == []
