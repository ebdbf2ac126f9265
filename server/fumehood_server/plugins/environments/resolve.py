"""Dependency resolution by uv, for every platform, or by pip, for this one. Only wheels are considered."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.requirements import Requirement

from fumehood_server.plugins.environments.errors import InstallerError
from fumehood_server.plugins.environments.installer import UV, Installer, run_installer
from fumehood_server.plugins.environments.interpreter import TAG
from fumehood_server.plugins.environments.plugin_lock import (
    ANY,
    LockedPackage,
    PluginLock,
    canonical_name,
    make_plugin_lock,
)
from fumehood_server.plugins.environments.sdk_packages import is_of_sdk, sdk_versions
from fumehood_server.plugins.environments.sdk_wheels import write_sdk_wheels

OLDEST_PYTHON = "3.11"
"""The oldest that the sidecar runs on."""
WHEELS_ALONE = (
    "wheels alone are taken, since building anything else runs code of the package: where a package has none, build "
    "one and publish it where your installer looks"
)

_SDK_FOLDER = "sdk"
_LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?:\s*;\s*(?P<marker>[^\\]*?))?\s*\\?")
_HASH = re.compile(r"\s*--hash=sha256:([0-9a-f]{64})\s*\\?")


def resolve(dependencies: Sequence[str], installer: Installer) -> PluginLock:
    """Choose versions for `dependencies` and all that they require. Blocks; asks the installer's index.

    The SDK's own distributions are held at their versions here and left out, since every plugin has them.

    Raises:
        InstallerError: there is no solution, or the index can't be asked.
    """
    wanted = [text for text in dependencies if not _brought_by_sdk(text)]
    if not wanted:
        return make_plugin_lock(dependencies, ANY, ())
    held = "".join(f"{name}=={version}\n" for name, version in sdk_versions().items())
    with tempfile.TemporaryDirectory(prefix="fumehood-lock-") as name:
        folder = Path(name)
        constraints = folder / "constraints.txt"
        constraints.write_text(held)
        write_sdk_wheels(folder / _SDK_FOLDER)
        by_uv = installer.name == UV
        try:
            found = list((_by_uv if by_uv else _by_pip)(wanted, installer, folder, constraints))
        except InstallerError as exc:
            raise InstallerError(exc.problem, exc.hint or WHEELS_ALONE) from exc
    packages = [each for each in found if not is_of_sdk(each.name)]
    return make_plugin_lock(dependencies, ANY if by_uv else TAG, packages)


def _brought_by_sdk(text: str) -> bool:
    """Whether there is nothing to look for: a distribution of the SDK's, without an extra that requires more."""
    requirement = Requirement(text)
    return is_of_sdk(requirement.name) and not requirement.extras


def _by_uv(wanted: Sequence[str], installer: Installer, folder: Path, constraints: Path) -> Iterator[LockedPackage]:
    command = (
        *installer.command,
        *("pip", "compile", "--quiet", "--no-progress", "--universal", "--generate-hashes"),
        *("--python-version", OLDEST_PYTHON, "--only-binary", ":all:"),
        *("--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"),
        *("--constraints", str(constraints), "--find-links", str(folder / _SDK_FOLDER), "-"),
    )
    text = run_installer(command, folder, what="resolving with uv", stdin="".join(f"{each}\n" for each in wanted))
    lines = [line for line in text.splitlines() if line.strip()]
    while lines:
        head = _LINE.fullmatch(lines.pop(0))
        if head is None:
            raise InstallerError("uv wrote what is not a resolution", "use another version of uv, or --with pip")
        hashes = []
        while lines and (found := _HASH.fullmatch(lines[0])):
            hashes.append(found[1])
            lines.pop(0)
        yield _package(head["name"], head["version"], hashes, head["marker"] or "")


def _by_pip(wanted: Sequence[str], installer: Installer, folder: Path, constraints: Path) -> Iterator[LockedPackage]:
    command = (
        *installer.command,
        *("install", "--dry-run", "--ignore-installed", "--no-user", "--quiet", "--no-input"),
        *("--only-binary", ":all:", "--report", "-", "--constraint", str(constraints)),
        *("--find-links", str(folder / _SDK_FOLDER), "--", *wanted),
    )
    text = run_installer(command, folder, what="resolving with pip")
    try:
        for each in json.loads(text)["install"]:
            metadata, info = each["metadata"], each["download_info"]
            yield _package(metadata["name"], metadata["version"], [info["archive_info"]["hashes"]["sha256"]], "")
    except (ValueError, KeyError, TypeError) as exc:
        raise InstallerError("pip wrote what is not a report", "use pip 23 or newer, or uv") from exc


def _package(name: str, version: str, hashes: Sequence[str], marker: str) -> LockedPackage:
    if not hashes:
        raise InstallerError(f"there is no wheel of {name} {version} with a hash", WHEELS_ALONE)
    return LockedPackage(name=canonical_name(name), version=version, sha256=tuple(sorted(hashes)), marker=marker)
