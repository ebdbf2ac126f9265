"""Ignore rules of a plugin's folder, in gitignore's syntax: what is neither pinned nor copied nor run."""

from __future__ import annotations

import os
import re
import stat
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fumehood_server.errors import PluginInvalidError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_NAME = ".fumehoodignore"

DEFAULT_PATTERNS = (
    # Version control: histories differ between clones of one commit. In a worktree or submodule `.git` is a file.
    *(".git", ".hg/", ".svn/", ".jj/"),
    # Caches, and bytecode, which Python's loader in the SDK doesn't read either.
    *("__pycache__/", "*.py[co]", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", ".hypothesis/", ".tox/", ".nox/"),
    *(".import_linter_cache/", ".ipynb_checkpoints/", ".coverage", ".cache/"),
    # Editors and desktops.
    *(".*.sw[a-p]", "*.swp", "*~", ".#*", r"\#*#", "4913", ".idea/", ".vscode/", ".DS_Store", "Thumbs.db"),
    # Built from what is pinned, and never the same twice: scripts of a virtual environment hold absolute paths.
    *(".venv/", "/target/"),
)
"""Left out unless a `!` line of `.fumehoodignore` takes it in."""
OPERATORS_PATTERNS = ("/fumehood.toml", "/fumehood.lock", ".fumehood/")
"""The operator's, where a sidecar is configured beside a plugin: tokens, keys and journal. No line takes them in."""
NODE_LOCKS = ("package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock")
"""With one of them at the top of the folder, `node_modules` is left out as well: it can be made from it."""

MAX_FILE_BYTES = 64 * 1024
MAX_PATTERNS = 256
MAX_STARS = 2
MAX_DOUBLE_STARS = 2
"""Python's `re` backtracks over them. Measured on a path of 1 KiB: 9 ms at two of each, 0.4 s at four, 23 s at five,
in which no other thread runs."""

_BACKEND: Literal["simple"] = "simple"
"""Python's `re`, on every machine: where google-re2 happens to be installed, pathspec would take that, which knows no
names that are not UTF-8."""
_CLASS = re.compile(r"\[[!^]?[\w.-]+\]", re.ASCII)
_DOUBLE_STAR = re.compile(r"(?:^|(?<=/))\*\*(?=/|$)")


class IgnoreRules:
    """The default patterns and those of one folder. The last pattern that matches decides, as in gitignore(5)."""

    def __init__(self, spec: GitIgnoreSpec) -> None:
        """Make it with `ignore_rules`."""
        self._spec = spec

    def ignores(self, name: bytes, *, is_folder: bool) -> bool:
        """Whether a path from the plugin's folder is left out. What lies in a folder that is left out is so too."""
        # Bytes that aren't UTF-8 become lone surrogates, which patterns match as any other character.
        return self._spec.match_file(os.fsdecode(name) + ("/" if is_folder else ""))


def ignore_rules(root: Path, folder: int) -> IgnoreRules:
    """The rules of the folder whose descriptor is `folder`; `root` is its path, for errors.

    Raises:
        PluginInvalidError: `.fumehoodignore` can't be read, or has a pattern that isn't taken.
    """
    has_node_lock = any(_is_there(name, folder) for name in NODE_LOCKS)
    text = _read(root / IGNORE_NAME, folder)
    if text is None:
        return _default_rules(has_node_lock)
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - takes 50 ms to import

    own = text.splitlines()
    _check(root / IGNORE_NAME, own)
    lines = [*_default_patterns(has_node_lock), *own, *OPERATORS_PATTERNS]
    return IgnoreRules(GitIgnoreSpec.from_lines(lines, backend=_BACKEND))


def _default_patterns(has_node_lock: bool) -> tuple[str, ...]:
    return (*DEFAULT_PATTERNS, *(("node_modules/",) if has_node_lock else ()))


@cache
def _default_rules(has_node_lock: bool) -> IgnoreRules:
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - takes 50 ms to import

    lines = [*_default_patterns(has_node_lock), *OPERATORS_PATTERNS]
    return IgnoreRules(GitIgnoreSpec.from_lines(lines, backend=_BACKEND))


def _is_there(name: str, folder: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _read(path: Path, folder: int) -> str | None:
    """The file's text. None: there is none."""
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        descriptor = os.open(IGNORE_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise PluginInvalidError(path, f"can't be read: {exc.strerror}", hint="make it a regular file") from exc
    with open(descriptor, "rb") as opened:  # noqa: PTH123 - by descriptor
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise PluginInvalidError(path, "is not a regular file", hint="make it one")
        raw = opened.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise PluginInvalidError(path, f"is larger than {MAX_FILE_BYTES} bytes", hint="leave out whole folders")
    try:
        return raw.decode()
    except UnicodeDecodeError as exc:
        raise PluginInvalidError(path, "is not UTF-8") from exc


def _check(path: Path, lines: list[str]) -> None:
    """Refuse patterns that mean nothing or that would take long."""
    patterns = [(number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    if len(patterns) > MAX_PATTERNS:
        raise PluginInvalidError(path, f"has more than {MAX_PATTERNS} patterns", hint="leave out whole folders")
    for number, line in patterns:
        problem = _problem(line)
        if problem:
            hint = "patterns are those of gitignore(5)"
            raise PluginInvalidError(path, f'the pattern "{line[:80]}" {problem}', line=number, hint=hint)


def _problem(line: str) -> str:
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - takes 50 ms to import

    plain = re.sub(r"\\.", "", line)
    doubles = len(_DOUBLE_STAR.findall(plain))
    if doubles > MAX_DOUBLE_STARS or plain.count("*") - 2 * doubles > MAX_STARS:
        return f"has more than {MAX_STARS} `*`, or more than {MAX_DOUBLE_STARS} `**`"
    if "[" in _CLASS.sub("", plain):
        return "has a `[` that isn't a plain class of characters, such as [a-z]"
    try:
        (pattern,) = GitIgnoreSpec.from_lines([line], backend=_BACKEND).patterns
    except ValueError:
        return "can't be read"
    return "matches nothing" if pattern.include is None else ""
