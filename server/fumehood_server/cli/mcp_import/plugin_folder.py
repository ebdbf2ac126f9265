"""Folder of an imported plugin: plugin.toml with a mark of its writer, and the files that install the server."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
import shutil
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from fumehood_server.cli.mcp_import.left_out import LeftOut
from fumehood_server.cli.mcp_import.npm_package import PACKAGE_NAME
from fumehood_server.cli.mcp_import.own_code import copy_code, same_code
from fumehood_server.config.toml_text import toml_string
from fumehood_server.plugins.manifest import MANIFEST_NAME

_MARK = "# Written by `fumehood mcp import`; once changed by hand it is left alone. "
_UNSHOWN = {"package-lock.json", "plugin.lock"}


class FolderState(StrEnum):
    """What an import finds where it would write."""

    NEW = "new"
    SAME = "same"
    CHANGED = "changed"
    """Written by an earlier import, which differs."""
    BY_HAND = "by_hand"
    """Written by an earlier import, and changed since."""
    FOREIGN = "foreign"
    """Not written by an import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderContent:
    """What a folder is to hold."""

    manifest: str
    """plugin.toml, without its mark."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts beside it, by name."""
    program: Path | None = None
    """A program that is copied to bin/."""
    code: Path | None = None
    """A project that is copied to code/."""
    left_out: LeftOut = field(default_factory=LeftOut)
    """What of it is not copied."""

    def state_of(self, folder: Path) -> FolderState:
        """What is there now, against this."""
        if not os.path.lexists(folder):
            return FolderState.NEW
        try:
            old = (folder / MANIFEST_NAME).read_text()
        except (OSError, UnicodeDecodeError):
            return FolderState.FOREIGN
        if not old.startswith(_MARK):
            return FolderState.FOREIGN
        if old != marked(old.partition("\n")[2]):
            return FolderState.BY_HAND
        same = old == marked(self.manifest) and all(_text(folder / name) == text for name, text in self.files.items())
        return FolderState.SAME if same and not self._copies_differ(folder) else FolderState.CHANGED

    def is_same_server(self, folder: Path) -> bool:
        """Whether what is there, by an earlier import, runs the same code as this, whatever its packages' versions.

        Variables count: NODE_OPTIONS or PYTHONPATH can name what is run.
        """
        old = _without_versions(_text(folder / MANIFEST_NAME), _text(folder / PACKAGE_NAME))
        new = _without_versions(self.manifest, self.files.get(PACKAGE_NAME, ""))
        return old == new and not self._copies_differ(folder)

    def diff(self, folder: Path) -> str:
        """How this differs from what is there, as a unified diff; of locks, that they do."""
        texts = {MANIFEST_NAME: self.manifest, **self.files}
        lines: list[str] = []
        for name, new in texts.items():
            old = _text(folder / name)
            if name == MANIFEST_NAME and old.startswith(_MARK):
                old = old.partition("\n")[2]
            if name in _UNSHOWN:
                lines += [f"{name} differs"] if old != new else []
                continue
            lines += difflib.unified_diff(old.splitlines(), new.splitlines(), f"a/{name}", f"b/{name}", lineterm="")
        lines += self._copies_differ(folder)
        return "\n".join(lines)

    def without_secrets(self, names: Collection[str]) -> FolderContent:
        """The same without the variables and header fields that hold these secrets."""
        lines = self.manifest.splitlines(keepends=True)
        return replace(self, manifest="".join(each for each in lines if not any(holds_secret(each, n) for n in names)))

    def write(self, folder: Path) -> None:
        """Write all of it; what else lies there stays. plugin.toml comes last: without it the folder is no plugin.

        Raises:
            NotImportableError: there is too much to copy.
            OSError: the folder can't be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if self.program is not None:
            place = folder / "bin" / self.program.name
            place.parent.mkdir(exist_ok=True)
            new = place.with_name(f".{place.name}.new")
            shutil.copyfile(self.program, new)
            new.chmod(0o755)
            new.replace(place)
        if self.code is not None:
            copy_code(self.code, folder, self.left_out)
        for name, text in {**self.files, MANIFEST_NAME: marked(self.manifest)}.items():
            new = folder / f".{name}.{os.getpid()}.new"
            new.write_text(text, newline="")
            new.replace(folder / name)

    def _copies_differ(self, folder: Path) -> list[str]:
        """What of this machine's is other than the copies, in words."""
        words = [] if self._same_program(folder) else ["its program differs"]
        if self.code is not None and not same_code(self.code, folder, self.left_out):
            words.append(f"its code in {self.code} differs")
        return words

    def _same_program(self, folder: Path) -> bool:
        if self.program is None:
            return True
        place = folder / "bin" / self.program.name
        try:
            with place.open("rb") as old, self.program.open("rb") as new:
                return hashlib.file_digest(old, "sha256").digest() == hashlib.file_digest(new, "sha256").digest()
        except OSError:
            return False


def imported_in(into: Path) -> list[Path]:
    """The folders of plugins that imports have written to a folder, changed by hand since or not."""
    found = []
    for each in sorted(into.iterdir()) if into.is_dir() else ():
        with contextlib.suppress(OSError), (each / MANIFEST_NAME).open("rb") as file:
            if file.read(len(_MARK)) == _MARK.encode():
                found.append(each)
    return found


def holds_secret(text: str, name: str) -> bool:
    """Whether a manifest that an import wrote hands a secret over. No other value can hold its quotes unescaped."""
    return f"{{ secret = {toml_string(name)}" in text


def marked(manifest: str) -> str:
    """The manifest below a line with its digest, by which a change by hand is known."""
    return f"{_MARK}sha256:{hashlib.sha256(manifest.encode()).hexdigest()}\n{manifest}"


def manifest_text(
    *,
    name: str,
    version: str,
    description: str,
    command: tuple[str, ...],
    build: tuple[str, ...] = (),
    dependencies: tuple[str, ...] = (),
    environment: Mapping[str, str],
    secrets: Mapping[str, str],
) -> str:
    """plugin.toml of kind `mcp`. `secrets` are names of secrets, by variable."""
    lines = [*_about(name, version, description), f"command = {_array(command)}"]
    if build:
        lines.append(f"build = {_array(build)}")
    if dependencies:
        lines.append(f"dependencies = {_array(dependencies)}")
    if environment or secrets:
        lines += ["", "[plugin.environment]"]
        lines += [f"{variable} = {toml_string(value)}" for variable, value in sorted(environment.items())]
        lines += [f"{variable} = {{ secret = {toml_string(secret)} }}" for variable, secret in sorted(secrets.items())]
    return "\n".join(lines) + "\n"


def remote_manifest_text(
    *,
    name: str,
    description: str,
    url: str,
    headers: Iterable[tuple[str, str]],
    secrets: Iterable[tuple[str, str, str]],
) -> str:
    """plugin.toml of a server over HTTP, whose version is not known here.

    `secrets` are header fields, the secrets that they hold, and what stands before those.
    """
    lines = [*_about(name, "1.0.0", description), f"url = {toml_string(url)}"]
    fields = [f"{toml_string(each)} = {toml_string(value)}" for each, value in headers]
    for each, secret, prefix in secrets:
        before = f", prefix = {toml_string(prefix)}" if prefix else ""
        fields.append(f"{toml_string(each)} = {{ secret = {toml_string(secret)}{before} }}")
    if fields:
        lines += ["", "[plugin.headers]", *fields]
    return "\n".join(lines) + "\n"


def _about(name: str, version: str, description: str) -> list[str]:
    return [
        "[plugin]",
        f"name = {toml_string(name)}",
        f"version = {toml_string(version)}",
        'kind = "mcp"',
        f"description = {toml_string(description)}",
    ]


def _array(texts: tuple[str, ...]) -> str:
    return f"[{', '.join(map(toml_string, texts))}]"


def _without_versions(manifest: str, package: str) -> dict[str, Any] | None:
    """What a manifest and a package.json say, but for versions. None: they can't be read."""
    try:
        plugin: dict[str, Any] = tomllib.loads(manifest)["plugin"]
        plugin["dependencies"] = sorted(Requirement(each).name for each in plugin.get("dependencies", ()))
        plugin["packages"] = sorted(json.loads(package)["dependencies"]) if package else []
    except (ValueError, KeyError, TypeError):
        return None
    return {key: value for key, value in plugin.items() if key not in {"version", "description", "build"}}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
