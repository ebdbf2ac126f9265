"""plugin.lock: the packages of a plugin by name, version and SHA-256. It names no address and no index."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import Field

from fumehood_server.config.tables import Table, check_with, read_table, refused
from fumehood_server.config.toml_source import read_toml
from fumehood_server.config.toml_text import toml_string
from fumehood_server.errors import PluginInvalidError
from fumehood_server.plugins.environments.interpreter import TAG
from fumehood_server.plugins.environments.sdk_packages import is_of_sdk

PLUGIN_LOCK_NAME = "plugin.lock"
PLUGIN_LOCK_VERSION = 1
ANY = "any"
"""`resolved_for` of a lock that holds for every interpreter and platform that its packages have wheels for."""

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_PACKAGES = 2000
_MAX_HASHES = 512
"""Files of one release: a wheel for each interpreter and platform."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPackage:
    """One package at one version."""

    name: str
    """Canonical (PEP 503)."""
    version: str
    sha256: tuple[str, ...]
    """Of each file that may be installed, in hexadecimal, sorted."""
    marker: str = ""
    """Where it is needed (PEP 508). Empty: everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginLock:
    """The whole file."""

    dependencies: tuple[str, ...]
    """What was resolved, in canonical spelling and sorted."""
    resolved_for: str
    """`ANY`, or the `interpreter.TAG` of the machine that it was resolved on."""
    packages: tuple[LockedPackage, ...]
    """Sorted by name and version."""

    @property
    def holds_here(self) -> bool:
        """Whether it was resolved for this interpreter and platform, among others."""
        return self.resolved_for in {ANY, TAG}

    def needed_here(self) -> tuple[LockedPackage, ...]:
        """The packages whose markers hold for this interpreter and platform."""
        return tuple(each for each in self.packages if not each.marker or Marker(each.marker).evaluate())


def environment_key(packages: Iterable[LockedPackage]) -> str:
    """Digest of packages, interpreter and platform, in hexadecimal: plugins with equal ones share an environment."""
    content = [TAG, *([each.name, each.version, each.sha256] for each in packages)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _package_name(value: object) -> object:
    if not (isinstance(value, str) and len(value) <= 128 and _NAME.fullmatch(value)):  # noqa: PLR2004 - of files, some 255
        raise refused("a package's name in canonical form is needed", 'for example "typing-extensions"')
    if is_of_sdk(value):
        raise refused(f"{value} comes with the SDK, and no other can be used beside it", "lock the plugin again")
    return value


def _package_version(value: object) -> object:
    try:
        if isinstance(value, str) and len(value) <= 64 and value.isascii():  # noqa: PLR2004 - as for plugins
            Version(value)
            return value
    except InvalidVersion:
        pass
    raise refused("a package's version is needed", 'for example "1.0.0"')


def _marker(value: object) -> object:
    try:
        if isinstance(value, str) and len(value) <= 1024 and "$" not in value:  # noqa: PLR2004 - its parser recurses
            Marker(value).evaluate()
            return value
    except (InvalidMarker, UndefinedEnvironmentName, RecursionError):
        pass
    raise refused("a marker is needed", "for example \"sys_platform == 'linux'\"")


_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _PackageTable(Table):
    """`[[package]]`."""

    name: Annotated[str, check_with(_package_name)]
    version: Annotated[str, check_with(_package_version)]
    marker: Annotated[str | None, check_with(_marker)] = None
    sha256: list[_Sha256] = Field(min_length=1, max_length=_MAX_HASHES)


class _PluginLockFile(Table):
    """The whole file."""

    version: int
    dependencies: list[str]
    resolved_for: str = Field(max_length=128)
    package: list[_PackageTable] = Field(default=[], max_length=_MAX_PACKAGES)


def read_plugin_lock(folder: Path) -> PluginLock | None:
    """The lock in the plugin's folder. None: there is none.

    Raises:
        PluginInvalidError: it isn't what `fumehood plugin lock` writes.
    """
    path = folder / PLUGIN_LOCK_NAME
    if not path.is_file():
        return None
    source = read_toml(path, PluginInvalidError)
    found = source.data.get("version")
    if found != PLUGIN_LOCK_VERSION:
        text = f"is of version {found}, and this program reads {PLUGIN_LOCK_VERSION}"
        raise source.problem(("version",), text, "run `fumehood plugin lock`")
    file = read_table(_PluginLockFile, source)
    lock = make_plugin_lock(
        file.dependencies,
        file.resolved_for,
        (
            LockedPackage(
                name=each.name, version=each.version, sha256=tuple(sorted(each.sha256)), marker=each.marker or ""
            )
            for each in file.package
        ),
    )
    counts = Counter(each.name for each in lock.needed_here())
    for index, each in enumerate(file.package):
        if counts[each.name] > 1:
            problem = f'"{each.name}" is needed here in two versions'
            raise source.problem(("package", index), problem, "run `fumehood plugin lock`")
    return lock


def make_plugin_lock(dependencies: Iterable[str], resolved_for: str, packages: Iterable[LockedPackage]) -> PluginLock:
    """A lock in canonical order."""
    return PluginLock(
        dependencies=tuple(dependencies),
        resolved_for=resolved_for,
        packages=tuple(sorted(packages, key=lambda each: (each.name, each.version, each.marker))),
    )


def plugin_lock_text(lock: PluginLock) -> str:
    """The file's text: the same lock gives the same bytes, one hash a line, so that version control shows changes."""
    lines = [
        "# Written by `fumehood plugin lock`: change the dependencies and run it again.",
        f"version = {PLUGIN_LOCK_VERSION}",
        f"resolved_for = {toml_string(lock.resolved_for)}",
        *_array("dependencies", lock.dependencies),
    ]
    for each in lock.packages:
        lines += ["", "[[package]]", f"name = {toml_string(each.name)}", f"version = {toml_string(each.version)}"]
        lines += [f"marker = {toml_string(each.marker)}"] if each.marker else []
        lines += _array("sha256", each.sha256)
    return "\n".join(lines) + "\n"


def requirements_text(packages: Iterable[LockedPackage]) -> str:
    """The packages in the form that installers read, with their hashes."""
    return "".join(
        f"{each.name}=={each.version}" + "".join(f" \\\n    --hash=sha256:{digest}" for digest in each.sha256) + "\n"
        for each in packages
    )


def canonical_name(name: str) -> str:
    """A distribution's name in canonical form (PEP 503)."""
    return str(canonicalize_name(name))


def _array(key: str, values: Iterable[str]) -> list[str]:
    return [f"{key} = [", *(f"    {toml_string(each)}," for each in values), "]"]
