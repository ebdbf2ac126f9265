"""What the pages lead to is there: files, tests, copies of the protocol."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    (*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/*.md"))
)
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")

CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(
    r"(?:(?:tests|bench|constraints|evidence|examples|plugin_sdk|protos|sandbox)/|(?:docs|server|tools)/[\w./-]*\.)[\w./-]+"
)
"""Of this repository; in docs/, server/ and tools/ those with an ending: MCP's methods have such names as well."""
OF_PLUGINS = {"tests/run.jsonl"}
"""In an author's folder, not in this repository."""


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    lost = []
    for target, anchor in LINK.findall(page.read_text()):
        found = (page.parent / target).resolve() if target else page
        if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found)):
            lost.append(f"{target}#{anchor}")
    assert lost == []


def test_every_file_of_the_repository_that_is_named_is_there() -> None:
    found, lost = set(), set()
    for page in PAGES:
        words = {word.partition("::")[0] for code in CODE.findall(page.read_text()) for word in code.split()}
        named = {word for word in words if PATH.fullmatch(word)} - OF_PLUGINS
        found |= named
        lost |= {
            f"{page}: {name}" for name in named if not (ROOT / name).exists() and not (page.parent / name).exists()
        }
    assert found >= {"tests/deploy", "tests/landlock_only/test_sidecar.py", "tools/kernels/matrix.py"}
    assert sorted(lost) == []


def test_copies_of_the_protocol_are_the_protocol() -> None:
    copies = [path for path in (ROOT / "examples").rglob("*.proto") if "node_modules" not in path.parts]
    assert copies
    stale = [path for path in copies if path.read_bytes() != (ROOT / "protos/fumehood/v1" / path.name).read_bytes()]
    assert stale == []
