"""Environments in `state_dir`: installed packages by digest of a lock, built plugins by digest of their folder.

They are found and verified before use; only `build` writes them.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from fumehood_server.config.config import SidecarConfig
from fumehood_server.model.text import printable
from fumehood_server.model.tool import Reason
from fumehood_server.plugins.environments.contents import contents_digest, contents_signature
from fumehood_server.plugins.environments.errors import EnvironmentUnavailableError
from fumehood_server.plugins.environments.in_use import EnvironmentsInUse
from fumehood_server.plugins.environments.interpreter import DESCRIPTION, PLATFORM
from fumehood_server.plugins.environments.plugin_lock import (
    PLUGIN_LOCK_NAME,
    PluginLock,
    environment_key,
    read_plugin_lock,
)
from fumehood_server.plugins.environments.record import CONTENTS_NAME, RECORD_NAME, read_record
from fumehood_server.plugins.environments.sdk_packages import unmet


@dataclass(frozen=True, slots=True)
class Environment:
    """The packages of one plugin, or what its build makes of it. Plugins with equal locks have the same `path`."""

    what: str
    """What it is and for whom, to begin a sentence with."""
    folder: Path
    """The plugin's own, for remedies."""
    path: Path

    @property
    def contents(self) -> Path:
        """The folder that a plugin imports its packages from; or the plugin's folder as it was built."""
        return self.path / CONTENTS_NAME


def environments_folder(config: SidecarConfig) -> Path:
    """Where environments lie: in the `state_dir`, or in the user's own where there is no configuration.

    Commands on a plugin's folder run without one, and what they build must be found again, outside of that folder.
    """
    if config.path is not None:
        return config.server.state_dir / "environments"
    state = os.environ.get("XDG_STATE_HOME", "")
    # A relative path is ignored, as the XDG Base Directory Specification wants it.
    home = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return home / "fumehood" / "environments"


class Environments:
    """All environments of a sidecar. Its methods block, bar `problem`; threads may share it."""

    def __init__(self, root: Path) -> None:
        """`root` need not exist."""
        self.root = root
        self._verified: dict[Path, tuple[str, bytes]] = {}
        self._problems: dict[Path, Reason] = {}
        self._in_use = EnvironmentsInUse()

    def of_plugin(self, plugin: str, folder: Path, dependencies: tuple[str, ...], *, named: Path) -> Environment | None:
        """The environment that the lock in `folder` leads to. None: the plugin needs no packages.

        `named` is the folder that people know the plugin by. The environment need not be there: see `verify`.

        Raises:
            EnvironmentUnavailableError: the lock is missing, stale, or for another interpreter.
            PluginInvalidError: it isn't what `fumehood plugin lock` writes.
        """
        lock = usable_lock(plugin, folder, dependencies, named=named)
        needed = lock.needed_here() if lock else ()
        what = f"the environment of {plugin} by its {PLUGIN_LOCK_NAME}, for {DESCRIPTION},"
        return Environment(what, named, self.root / environment_key(needed)) if needed else None

    def of_build(self, plugin: str, digest: str, command: tuple[str, ...], *, named: Path) -> Environment:
        """Where the plugin lies as `command` built it. `digest` is that of its folder as the author ships it."""
        key = hashlib.sha256(json.dumps([PLATFORM, digest, command]).encode()).hexdigest()
        return Environment(f"the build of {plugin} by `{printable(' '.join(command))}`", named, self.root / key)

    def verify(self, environment: Environment) -> Reason | None:
        """Why the environment can't be used now. None: each file is as it was when the environment was built.

        This process then holds it, so that no other removes it. All contents are read the first time and after any
        change, else only names, sizes and times of change.
        """
        path = environment.path
        reason = self._verify(environment)
        if reason is None:
            self._problems.pop(path, None)
        else:
            self._problems[path] = reason
            self._verified.pop(path, None)
        return reason

    def problem(self, environment: Environment) -> Reason | None:
        """What `verify` said last, or that the environment is gone by now. One system call."""
        found = self._problems.get(environment.path)
        if found is None and not os.access(environment.path / RECORD_NAME, os.F_OK):
            return _missing(environment)
        return found

    def _verify(self, environment: Environment) -> Reason | None:
        record = read_record(environment.path)
        if record is None:
            return _missing(environment)
        try:
            self._in_use.hold(environment.path)
            now = (record.contents, contents_signature(environment.contents))
            if self._verified.get(environment.path) != now:
                if contents_digest(environment.contents) != record.contents:
                    return _changed(environment, "its files are not the ones that were put there")
                self._verified[environment.path] = now
        except OSError as exc:
            return _changed(environment, exc.strerror or str(exc))
        problems = unmet(record.sdk_requirements)
        if problems:
            message = f"{environment.what} doesn't fit the SDK of this sidecar: it needs {problems[0]}"
            return Reason("environment_unfit", message, f"fumehood plugin lock {environment.folder}")
        return None


def usable_lock(plugin: str, folder: Path, dependencies: tuple[str, ...], *, named: Path) -> PluginLock | None:
    """The lock in `folder`, if it is one of `dependencies` for this interpreter.

    None: there are neither, or the plugin brings its packages in a virtual environment of its own.

    Raises:
        EnvironmentUnavailableError: it is missing, stale, or for another interpreter.
        PluginInvalidError: it isn't what `fumehood plugin lock` writes.
    """
    remedy = f"fumehood plugin lock {named}"
    lock = read_plugin_lock(folder)
    if lock is None:
        if dependencies and not (folder / ".venv").is_dir():
            message = f"{plugin} has dependencies and no {PLUGIN_LOCK_NAME}, which says what to install for them"
            raise EnvironmentUnavailableError(Reason("dependencies_unlocked", message, remedy))
        return None
    if lock.dependencies != dependencies:
        message = f"{PLUGIN_LOCK_NAME} of {plugin} was made for other dependencies than it has now"
        raise EnvironmentUnavailableError(Reason("lock_stale", message, remedy))
    if not lock.holds_here:
        message = (
            f"{PLUGIN_LOCK_NAME} of {plugin} was resolved for {lock.resolved_for} alone, and this is {DESCRIPTION}"
        )
        raise EnvironmentUnavailableError(
            Reason("lock_for_other_interpreter", message, f"{remedy} --with uv, which resolves for all of them")
        )
    return lock


def _missing(environment: Environment) -> Reason:
    message = f"{environment.what} is not there"
    return Reason("environment_missing", message, f"fumehood plugin build {environment.folder}")


def _changed(environment: Environment, detail: str) -> Reason:
    message = f"{environment.what} was changed in {environment.path}: {detail}"
    return Reason("environment_changed", message, f"fumehood plugin build {environment.folder}")
