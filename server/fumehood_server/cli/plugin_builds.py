"""Makes what plugins run with, for `plugin lock`, `build`, `add` and `dev`: packages of locks, and builds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fumehood_server.cli import output
from fumehood_server.cli.failure import CommandError, ExitStatus
from fumehood_server.config import SidecarConfig
from fumehood_server.egress import HostEntryError, parse_granted
from fumehood_server.plugins.environments.build import Say
from fumehood_server.plugins.environments.environments import (
    Environment,
    Environments,
    environments_folder,
    usable_lock,
)
from fumehood_server.plugins.environments.errors import EnvironmentUnavailableError, InstallerError
from fumehood_server.plugins.environments.installer import find_installer
from fumehood_server.plugins.environments.packages import install_packages
from fumehood_server.plugins.environments.plugin_lock import LockedPackage
from fumehood_server.plugins.environments.sandboxed_build import BuildCommand, build_plugin
from fumehood_server.plugins.manifest import Manifest
from fumehood_server.plugins.store import folder_digest, temporary_store


@dataclass(frozen=True, slots=True)
class Built:
    """What one plugin runs with, after a command has seen to it."""

    plugin: str
    folder: Path
    path: Path | None
    """The environment. None: the plugin needs neither packages nor a build."""
    packages: int
    """How many packages its lock names for this machine."""
    built: bool
    """False: it was there."""

    def to_json(self) -> dict[str, object]:
        """As `--json` prints it."""
        return {
            "plugin": self.plugin,
            "folder": str(self.folder),
            "environment": str(self.path) if self.path else None,
            "packages": self.packages,
            "built": self.built,
        }


def build_for(
    manifest: Manifest,
    config: SidecarConfig,
    *,
    installer: str = "",
    hosts: Sequence[str] = (),
    private: Sequence[str] = (),
    quiet: bool,
) -> Built:
    """Install what the plugin's lock names, or run its build command, unless that is there and intact.

    `installer` is "uv", "pip" or empty; `hosts` and `private` add to the `build_hosts` and `allow_private` of the
    configuration. Progress goes to
    stderr, unless `quiet`: with --json an error there must be JSON alone.

    Raises:
        CommandError: the lock doesn't fit the plugin, a package can't be had, or the build failed.
        ConfigError: the lock or the folder is not valid.
    """
    begun = time.monotonic()
    environments = Environments(environments_folder(config))

    def say(line: str) -> None:
        if not quiet:
            output.note(f"{manifest.name}: {line}")

    try:
        if manifest.takes_packages:
            done = _install(manifest, environments, installer, say)
        else:
            done = _build(manifest, environments, config, hosts, private, say)
    except (EnvironmentUnavailableError, InstallerError) as error:
        raise environment_failure(error) from error
    except OSError as error:
        text = f"{environments.root} can't be written: {error.strerror or error}"
        raise CommandError(text, "Make it writable.", code="NOT_WRITABLE", status=ExitStatus.FAILED) from error
    if done.built:
        say(f"done in {time.monotonic() - begun:.1f} s")
    return done


def work_before(manifest: Manifest, config: SidecarConfig, *, hosts: Sequence[str] = ()) -> tuple[str, ...]:
    """What `build_for` would do for a plugin, a line each, with what its manifest declares. Empty: nothing.

    Raises:
        CommandError: the lock doesn't fit the plugin.
        ConfigError: the lock or the folder is not valid.
    """
    environments = Environments(environments_folder(config))
    try:
        if manifest.takes_packages:
            environment, packages = _packages(manifest, environments)
            named = ", ".join(f"{each.name}=={each.version}" for each in packages)
            does = f"installs {output.plural(len(packages), 'package')} of its lock, held to hashes: {named}"
        else:
            environment = _built(manifest, folder_digest(manifest.folder), environments) if manifest.build else None
            reached = ", ".join(_build_hosts(manifest, config, hosts)) or "nobody"
            does = f"runs `{' '.join(manifest.build)}` in a sandbox that reaches {reached}"
    except EnvironmentUnavailableError as error:
        raise environment_failure(error) from error
    if environment is None or environments.verify(environment) is None:
        return ()
    declared = (
        f"{each.name} is of level {each.side_effects}"
        + (f", requires {', '.join(each.requires)}" * bool(each.requires))
        for each in manifest.tools
    )
    return (f"To be looked at, {manifest.name} {manifest.version} {does}", *declared)


def _packages(manifest: Manifest, environments: Environments) -> tuple[Environment | None, tuple[LockedPackage, ...]]:
    name, folder = manifest.name, manifest.folder
    lock = usable_lock(name, folder, manifest.dependencies, named=folder)
    if lock is None:
        return None, ()
    return environments.of_plugin(name, folder, manifest.dependencies, named=folder), lock.needed_here()


def _install(manifest: Manifest, environments: Environments, installer: str, say: Say) -> Built:
    name, folder = manifest.name, manifest.folder
    environment, packages = _packages(manifest, environments)
    if environment is None:
        return Built(name, folder, None, 0, built=False)
    built = install_packages(environments, environment, packages, lambda: find_installer(installer), say)
    return Built(name, folder, environment.path, len(packages), built)


def _built(manifest: Manifest, digest: str, environments: Environments) -> Environment:
    return environments.of_build(manifest.name, digest, manifest.build, named=manifest.folder)


def _build_hosts(manifest: Manifest, config: SidecarConfig, hosts: Sequence[str]) -> tuple[str, ...]:
    """The hosts that its build may reach: those of the configuration and those of the command line."""
    granted = {host for each in config.plugins if each.path == manifest.folder for host in each.build_hosts}
    for host in hosts:
        try:
            granted.add(str(parse_granted(host)))
        except HostEntryError as error:
            raise CommandError(f'--host: "{host[:80]}" {error.problem}', "Write NAME:PORT.") from error
    return tuple(sorted(granted))


def _build(
    manifest: Manifest,
    environments: Environments,
    config: SidecarConfig,
    hosts: Sequence[str],
    private: Sequence[str],
    say: Say,
) -> Built:
    name, folder, command = manifest.name, manifest.folder, manifest.build
    if not command:
        return Built(name, folder, None, 0, built=False)
    granted = _build_hosts(manifest, config, hosts)
    own = {each for plugin in config.plugins if plugin.path == folder for each in plugin.grants.private}
    with temporary_store() as copies:  # what is ignored is no part of the plugin, and not of its build either
        stored = copies.put(folder)
        environment = _built(manifest, stored.digest, environments)
        build = BuildCommand(
            plugin=name,
            folder=stored.path,
            command=command,
            hosts=granted,
            config=config,
            private=tuple(sorted({*own, *private})),
        )
        return Built(name, folder, environment.path, 0, build_plugin(environments, environment, build, say))


def environment_failure(error: EnvironmentUnavailableError | InstallerError) -> CommandError:
    """What is wrong with what a plugin runs with, as a command's error."""
    if isinstance(error, EnvironmentUnavailableError):
        what, todo, code = error.reason.message, error.reason.remedy, error.reason.code
    else:
        what, todo, code = error.problem, error.hint[:1].upper() + error.hint[1:], "build_failed"
    return CommandError(what, todo, code="ENVIRONMENT_FAILED", status=ExitStatus.FAILED, details={"reason": code})
