"""The packages that a script's block names (PEP 723), as the PEP's own reference reads it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fumehood_server.cli.mcp_import.inline_metadata import inline_dependencies
from fumehood_server.cli.mcp_import.launchers import NotImportableError

BLOCK = '# /// script\n# requires-python = ">=3.11"\n# dependencies = [\n#   "httpx",\n#   "rich<14",\n# ]\n# ///\n'


@pytest.mark.parametrize(
    ("text", "dependencies"),
    [
        ("#!/usr/bin/env python3\n" + BLOCK + "import httpx\n", ("httpx", "rich<14")),
        (BLOCK.replace("\n", "\r\n"), ("httpx", "rich<14")),
        (BLOCK + "# more\n", ("httpx", "rich<14")),
        ('# /// script\n# dependencies = ["a"]\n#\n# [tool.x]\n# y = """\n# ///\n# """\n# ///\n', ("a",)),
        ('# /// script\n# requires-python = ">=3.11"\n# ///\n', ()),
        ('# /// other\n# dependencies = ["a"]\n# ///\n', ()),
        ('# /// script\n# dependencies = ["a"]\nimport a\n# ///\n', ()),
        ('# /// script\n#dependencies = ["a"]\n# ///\n', ()),
        ("print()\n", ()),
        ("", ()),
    ],
)
def test_what_a_block_names_is_read_and_what_is_no_block_is_a_comment(
    tmp_path: Path, text: str, dependencies: tuple[str, ...]
) -> None:
    script = tmp_path / "server.py"
    script.write_text(text, newline="")
    assert inline_dependencies(script) == dependencies


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("# dependencies = [", "block of"),
        ('# dependencies = "httpx"', "an array of strings"),
        ("# dependencies = [1]", "an array of strings"),
        ('# dependencies = ["no package!"]', "is not a dependency"),
        ('# dependencies = ["a @ https://example.com/a.whl"]', "names an address"),
        ('# dependencies = []\n# ///\n\n# /// script\n# dependencies = ["a"]', "more than one"),
    ],
)
def test_a_block_that_cant_be_taken_is_refused_with_the_scripts_name(tmp_path: Path, block: str, said: str) -> None:
    script = tmp_path / "server.py"
    script.write_text(f"# /// script\n{block}\n# ///\n")
    with pytest.raises(NotImportableError, match=re.escape(str(script))) as caught:
        inline_dependencies(script)
    assert (caught.value.code, said in caught.value.reason, bool(caught.value.todo)) == ("not_resolved", True, True)


def test_a_script_that_is_no_text_has_no_block(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_bytes(b"\xff\xfe\x00\n")
    assert inline_dependencies(script) == ()
    assert inline_dependencies(tmp_path / "not there") == ()
