"""Reads, searches and writes files within what the operator granted.

The kernel holds every tool to the grants: a path outside them does not exist in its process. The checks here are for
the model that asks, which learns more from "that lies outside the granted folders" than from "no such file".
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from fumehood_sdk import Context, Plugin, ToolError
from pydantic import BaseModel, Field

plugin = Plugin("files", version="1.0.0")

MAX_TEXT_BYTES = 256 * 1024
MAX_ENTRIES = 1000

RelativePath = Annotated[str, Field(min_length=1, max_length=4096)]


class FileText(BaseModel):
    """What a file says."""

    path: str
    text: str
    size_bytes: int
    truncated: bool


class Entry(BaseModel):
    """One file or folder."""

    path: str
    kind: str
    size_bytes: int


class Listing(BaseModel):
    """What a folder holds."""

    entries: list[Entry]
    truncated: bool


class Match(BaseModel):
    """One line that was looked for."""

    path: str
    line: int
    text: str


class Matches(BaseModel):
    """All lines that were found."""

    matches: list[Match]
    files_searched: int
    truncated: bool


class Written(BaseModel):
    """What was written."""

    path: str
    size_bytes: int


def _within(path: str, roots: tuple[str, ...]) -> Path:
    """The real place of `path`, which is relative to the granted folders or absolute within one.

    Links are followed first, so that one which leads out of the grants is refused for where it leads.
    """
    if "\0" in path:
        raise ToolError("a path can't hold a NUL character", reason="invalid_path")
    refused = ToolError(
        f'"{path}" lies outside the granted folders. Use a path relative to one of: {", ".join(roots)}.',
        reason="outside_grants",
        details={"path": path, "granted": list(roots)},
    )
    candidates = [path] if os.path.isabs(path) else [os.path.join(root, path) for root in roots]
    # A granted folder may lie beneath a link as well, as /tmp is one where each call has a process of its own.
    places = [(Path(root), _real(root)) for root in roots]
    inside = [
        root / real.relative_to(place)
        for real in map(_real, candidates)
        for root, place in places
        if real.is_relative_to(place)
    ]
    if not inside:
        raise refused
    return next((real for real in inside if real.exists()), inside[0])


def _real(path: str) -> Path:
    try:
        return Path(os.path.realpath(path))
    except OSError as error:
        raise ToolError(f'"{path}" can\'t be followed: {error.strerror}', reason="invalid_path") from error


def _readable(ctx: Context) -> tuple[str, ...]:
    return (*ctx.readable_paths, *ctx.writable_paths)


@plugin.tool(side_effects="read", idempotent=True, requires=["read"], timeout_s=10)
def read_file(
    path: RelativePath, ctx: Context, max_bytes: Annotated[int, Field(ge=1, le=MAX_TEXT_BYTES)] = MAX_TEXT_BYTES
) -> FileText:
    """Read a text file within the granted folders.

    Args:
        path: Path relative to a granted folder, or absolute within one.
        max_bytes: Read at most this much from its beginning.
    """
    real = _within(path, _readable(ctx))
    try:
        if not real.is_file():
            raise ToolError(f'"{path}" is not a file', reason="file_not_found", details={"path": path})
        with real.open("rb") as file:
            data = file.read(max_bytes)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise _failed(path, error) from error
    return FileText(path=str(real), text=data.decode("utf-8", "replace"), size_bytes=size, truncated=size > len(data))


@plugin.tool(side_effects="read", idempotent=True, requires=["read"], timeout_s=10)
def list_files(ctx: Context, path: RelativePath = ".") -> Listing:
    """List the files and folders of a folder within the granted ones. Links are listed and not followed.

    Args:
        path: Path relative to a granted folder, or absolute within one.
    """
    real = _within(path, _readable(ctx))
    try:
        with os.scandir(real) as found:
            entries = sorted((_entry(each) for each in found), key=lambda entry: entry.path)
    except OSError as error:
        raise _failed(path, error) from error
    return Listing(entries=entries[:MAX_ENTRIES], truncated=len(entries) > MAX_ENTRIES)


def _entry(found: os.DirEntry[str]) -> Entry:
    kind = "link" if found.is_symlink() else "folder" if found.is_dir() else "file" if found.is_file() else "other"
    return Entry(path=found.path, kind=kind, size_bytes=found.stat(follow_symlinks=False).st_size)


@plugin.tool(side_effects="read", idempotent=True, requires=["read"], timeout_s=30)
def search_files(
    query: Annotated[str, Field(min_length=1, max_length=1000)],
    ctx: Context,
    path: RelativePath = ".",
    max_matches: Annotated[int, Field(ge=1, le=MAX_ENTRIES)] = 100,
) -> Matches:
    """Find the lines that hold a text, in all files below a folder. Upper and lower case are the same.

    Args:
        query: The text to look for.
        path: Path relative to a granted folder, or absolute within one.
        max_matches: Stop after this many lines.
    """
    real = _within(path, _readable(ctx))
    wanted = query.casefold()
    matches: list[Match] = []
    searched = 0
    for file in _files_below(real):
        ctx.check_cancelled()
        searched += 1
        if searched % 100 == 0:
            ctx.update(f"searched {searched} files", progress=searched)
        for number, line in _lines(file):
            if wanted in line.casefold():
                matches.append(Match(path=str(file), line=number, text=line[:500]))
                if len(matches) == max_matches:
                    return Matches(matches=matches, files_searched=searched, truncated=True)
    return Matches(matches=matches, files_searched=searched, truncated=False)


def _files_below(folder: Path) -> Iterator[Path]:
    if folder.is_file():
        yield folder
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            file = Path(parent, name)
            if file.is_file() and not file.is_symlink():
                yield file


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    try:
        with file.open(encoding="utf-8", errors="replace") as text:
            for number, line in enumerate(text, 1):
                yield number, line.rstrip("\n")
    except OSError:
        return  # a file that can't be read is passed over, as grep -s does


@plugin.tool(side_effects="write", idempotent=True, requires=["write"], timeout_s=10)
def write_file(path: RelativePath, text: Annotated[str, Field(max_length=MAX_TEXT_BYTES)], ctx: Context) -> Written:
    """Write a text file within the folders granted for writing, replacing what is there. Folders are made as needed.

    Args:
        path: Path relative to a granted folder, or absolute within one.
        text: What the file will say.
    """
    real = _within(path, ctx.writable_paths)
    data = text.encode()
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_bytes(data)
    except OSError as error:
        raise _failed(path, error) from error
    return Written(path=str(real), size_bytes=len(data))


def _failed(path: str, error: OSError) -> ToolError:
    reason = "file_not_found" if isinstance(error, FileNotFoundError) else "file_error"
    return ToolError(f'"{path}": {error.strerror}', reason=reason, details={"path": path, "errno": error.errno})
