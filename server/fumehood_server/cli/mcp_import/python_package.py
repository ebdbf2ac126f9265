"""Resolves packages of the Python index into plugin.lock. Wheels alone are taken, and none of their code runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.errors import ConfigError
from fumehood_server.plugins.environments.dependencies import (
    PYPROJECT_NAME,
    DependencyError,
    canonical_dependencies,
    pyproject_dependencies,
)
from fumehood_server.plugins.environments.errors import InstallerError
from fumehood_server.plugins.environments.installer import find_installer
from fumehood_server.plugins.environments.plugin_lock import (
    PluginLock,
    canonical_name,
    plugin_lock_text,
    read_plugin_lock,
)
from fumehood_server.plugins.environments.resolve import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonPackages:
    """What a server is installed from."""

    version: str
    """Of the server's own package."""
    dependencies: tuple[str, ...]
    """For the manifest: that package at exactly this version, and those beside it."""
    lock: str
    """The text of plugin.lock."""
    packages: int


def resolve_python(
    requirement: str, others: Sequence[str], old: Path | None, say: Callable[[str], None]
) -> PythonPackages:
    """Choose versions. `old` is the folder of an earlier import, whose lock is kept where it holds for the same.

    Raises:
        NotImportableError: it can't be resolved.
    """
    wanted = Requirement(requirement)

    def pinned(version: str) -> tuple[str, ...]:
        extras = f"[{','.join(sorted(wanted.extras))}]" if wanted.extras else ""
        return canonical_dependencies((f"{wanted.name}{extras}=={version}", *others))

    def fits(lock: PluginLock) -> bool:
        version = _version(lock, wanted.name)
        return lock.dependencies == pinned(version) and wanted.specifier.contains(version, prereleases=True)

    lock = _kept(old, fits) or _resolve((requirement, *others), say)
    version = _version(lock, wanted.name)
    if not version:
        what = f"{wanted.name} is not among what was resolved"
        raise NotImportableError("not_resolved", what, "It may come with the SDK, or not be for this platform.")
    found = PluginLock(dependencies=pinned(version), resolved_for=lock.resolved_for, packages=lock.packages)
    return PythonPackages(
        version=version, dependencies=found.dependencies, lock=plugin_lock_text(found), packages=len(found.packages)
    )


def resolve_project(
    project: Path, others: Sequence[str], old: Path | None, say: Callable[[str], None]
) -> PythonPackages | None:
    """Choose versions of what a project's pyproject.toml depends on, and of `others`. None: that is nothing.

    Raises:
        NotImportableError: it can't be resolved.
    """
    try:
        dependencies = pyproject_dependencies(project) if (project / PYPROJECT_NAME).is_file() else ()
        dependencies = canonical_dependencies((*dependencies, *others))
    except (ConfigError, DependencyError) as error:
        what = f"{project / PYPROJECT_NAME}: {error.problem}"
        raise NotImportableError("not_resolved", what, "Name its dependencies as packages of the index.") from error
    if not dependencies:
        return None
    lock = _kept(old, lambda lock: lock.dependencies == dependencies) or _resolve(dependencies, say)
    return PythonPackages(
        version="1.0.0", dependencies=lock.dependencies, lock=plugin_lock_text(lock), packages=len(lock.packages)
    )


def _resolve(requirements: Sequence[str], say: Callable[[str], None]) -> PluginLock:
    try:
        installer = find_installer()
        say(f"resolving {', '.join(requirements)} with {installer.name}")
        return resolve(canonical_dependencies(requirements), installer)
    except DependencyError as error:
        raise NotImportableError("not_resolved", error.problem, error.hint) from error
    except InstallerError as error:
        raise NotImportableError("not_resolved", error.problem, error.hint or "Look at its name.") from error


def _kept(old: Path | None, fits: Callable[[PluginLock], bool]) -> PluginLock | None:
    """The lock of an earlier import, if it holds here and fits."""
    if old is None:
        return None
    try:
        lock = read_plugin_lock(old)
        return lock if lock is not None and lock.holds_here and fits(lock) else None
    except (ConfigError, DependencyError):
        return None


def _version(lock: PluginLock, name: str) -> str:
    """The version that is locked of a package for this interpreter. Empty: none."""
    canonical = canonical_name(name)
    return next((each.version for each in lock.needed_here() if each.name == canonical), "")
