"""What is ignored is neither pinned nor copied, and patterns cost little whatever they are."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from fumehood_server.errors import PluginInvalidError
from fumehood_server.plugins.store import folder_digest
from fumehood_server.plugins.store.ignore import MAX_PATTERNS, ignore_rules


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "plugin"
    (root / "lib").mkdir(parents=True)
    (root / "plugin.toml").write_text("a")
    (root / "lib/code.py").write_text("b")
    return root


def add(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("x")


def counts(folder: Path, name: str) -> bool:
    """Whether adding a file changes the digest."""
    before = folder_digest(folder)
    add(folder, name)
    return folder_digest(folder) != before


def test_caches_histories_editors_files_and_what_is_built_are_no_part_of_the_digest(folder: Path) -> None:
    ignored = (
        *(".git/HEAD", "lib/.git", ".hg/x", "__pycache__/a.pyc", "lib/__pycache__/a.pyc", "lib/a.pyc"),
        *(".pytest_cache/x", ".mypy_cache/x", ".ruff_cache/x", ".hypothesis/x", "lib/.cache/x"),
        *("lib/.code.py.swp", "code.py~", ".#code.py", "#code.py#", ".idea/x", ".vscode/x", "lib/.DS_Store"),
        *(".venv/bin/python", ".venv/pyvenv.cfg", "target/debug/x", "fumehood.toml", "fumehood.lock", ".fumehood/x"),
    )
    assert [name for name in ignored if counts(folder, name)] == []
    kept = ("lib/target/x", "lib/fumehood.lock", "swp", "venv/x", ".gitignore", "node_modules/a/x.js", "tmp", "a.swf")
    assert [name for name in kept if not counts(folder, name)] == []


def test_node_modules_are_ignored_where_a_lock_says_what_they_hold(folder: Path) -> None:
    assert counts(folder, "node_modules/a/index.js")
    add(folder, "package-lock.json")
    assert not counts(folder, "node_modules/a/more.js")
    assert not counts(folder, "lib/node_modules/a/more.js")
    (folder / ".fumehoodignore").write_text("!node_modules/\n")
    assert counts(folder, "node_modules/a/again.js")


def test_no_line_takes_in_what_is_the_operators(folder: Path) -> None:
    lines = ("!.fumehood/", ".fumehood/*", "!.fumehood/tokens.json", "!lib/.fumehood/", "!fumehood.*", "!/.venv/")
    (folder / ".fumehoodignore").write_text("\n".join(lines) + "\n")
    names = (".fumehood/tokens.json", "lib/.fumehood/tokens.json", "fumehood.toml", "fumehood.lock")
    assert [name for name in names if counts(folder, name)] == []
    assert counts(folder, ".venv/pyvenv.cfg"), "control: what is left out by default can be taken in"


def test_the_last_pattern_that_matches_decides(folder: Path) -> None:
    (folder / ".fumehoodignore").write_text("# notes\n*.log\n!keep.log\n/data/\n!.venv/\n")
    assert not counts(folder, "lib/a.log")
    assert counts(folder, "lib/keep.log")
    assert not counts(folder, "data/keep.log")
    assert counts(folder, "lib/data/x")
    assert counts(folder, ".venv/lib/x.py")


def test_the_ignore_file_itself_is_pinned(folder: Path) -> None:
    before = folder_digest(folder)
    (folder / ".fumehoodignore").write_text("*.log\n")
    assert folder_digest(folder) != before


@pytest.mark.parametrize(
    "pattern", ["*a*a*a", "a/*/b/*/c/*", "**/a/**/b/**/c", "a**b*", "[", "[[:alpha:]]", "!", "/", "x\\", "[a-"]
)
def test_a_pattern_that_could_take_long_or_means_nothing_is_refused_with_its_line(folder: Path, pattern: str) -> None:
    (folder / ".fumehoodignore").write_text(f"# fine\n*.log\n{pattern}\n")
    with pytest.raises(PluginInvalidError) as caught:
        folder_digest(folder)
    assert caught.value.line == 3
    (folder / ".fumehoodignore").write_text("# fine\n*.log\n**/build/**\n[a-z]?\n\\!x\n")
    assert folder_digest(folder)


@pytest.mark.parametrize("content", [b"\xff\n", b"a\n" * (MAX_PATTERNS + 1), b"#" * 70_000])
def test_an_ignore_file_of_a_hostile_size_or_shape_is_refused(folder: Path, content: bytes) -> None:
    (folder / ".fumehoodignore").write_bytes(content)
    with pytest.raises(PluginInvalidError, match="fumehoodignore"):
        folder_digest(folder)


def test_an_ignore_file_that_is_no_file_is_refused_and_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / ".fumehoodignore")
    with pytest.raises(PluginInvalidError, match="not a regular file"):
        folder_digest(folder)
    (folder / ".fumehoodignore").unlink()
    (folder / ".fumehoodignore").symlink_to("/etc/passwd")
    with pytest.raises(PluginInvalidError, match="can't be read"):
        folder_digest(folder)


@pytest.mark.parametrize("pattern", ["a*a*/**/b", "**/a*a*b", "a/**/*a*b", "**/*a/**/b*", "?*?*?"])
def test_no_pattern_that_is_taken_holds_the_interpreter_for_long(folder: Path, pattern: str) -> None:
    (folder / ".fumehoodignore").write_text(pattern)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        rules = ignore_rules(folder, descriptor)
    finally:
        os.close(descriptor)
    name = (b"a/" * 500 + b"a" * 255)[-1024:]
    started = time.thread_time()
    rules.ignores(name, is_folder=False)
    # Processor time of this thread, in which no other ran: 10 ms where it is slow, minutes at five stars.
    assert time.thread_time() - started < 1
