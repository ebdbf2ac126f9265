"""Installs the packages of a lock: wheels, held to their hashes, unpacked and compiled.

No code of a package runs: wheels are archives, compiling executes nothing, and `.pth` files are never read, since the
folder is no site folder.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from fumehood_server.plugins.environments.build import Say, build_environment
from fumehood_server.plugins.environments.environments import Environment, Environments
from fumehood_server.plugins.environments.errors import InstallerError
from fumehood_server.plugins.environments.installer import UV, Installer, run_installer
from fumehood_server.plugins.environments.plugin_lock import LockedPackage, canonical_name, requirements_text
from fumehood_server.plugins.environments.record import Record
from fumehood_server.plugins.environments.resolve import WHEELS_ALONE
from fumehood_server.plugins.environments.sdk_packages import is_of_sdk, unmet
from fumehood_server.plugins.launch.sdk_site import PACKAGES

_COMPILE_TIMEOUT_S = 1800.0


def install_packages(
    environments: Environments,
    environment: Environment,
    packages: Sequence[LockedPackage],
    installer: Callable[[], Installer],
    say: Say = lambda _line: None,
) -> bool:
    """Build the environment of `packages`. False: it was there. Blocks; downloads.

    Raises:
        InstallerError: a package can't be had, is no wheel, has another hash, or doesn't fit the SDK.
        OSError: the folder can't be written.
    """

    def fill(contents: Path, staging: Path) -> Record:
        _install(contents, staging, packages, installer(), say)
        say("compiling")
        _compile(contents)
        return _checked(contents, packages)

    return build_environment(environments, environment, fill, say)


def _install(target: Path, staging: Path, packages: Sequence[LockedPackage], installer: Installer, say: Say) -> None:
    say(f"installing {len(packages)} packages with {installer.name}")
    work = staging / "work"
    work.mkdir()
    requirements = staging / "requirements.txt"
    requirements.write_text(requirements_text(packages))
    held = ("--no-deps", "--require-hashes", "--only-binary", ":all:", "--target", str(target))
    command: tuple[str, ...]
    if installer.name == UV:
        # Copies: a hard link into uv's cache would share the file with whoever writes there.
        command = ("pip", "install", "--quiet", "--no-progress", "--link-mode", "copy", "--python", sys.executable)
    else:
        command = ("install", "--quiet", "--no-input", "--no-user", "--no-compile", "--ignore-installed")
    try:
        run_installer(
            (*installer.command, *command, *held, "-r", str(requirements)),
            work,
            what=f"installing with {installer.name}",
        )
    except InstallerError as exc:
        raise InstallerError(exc.problem, exc.hint or WHEELS_ALONE) from exc


def _compile(target: Path) -> None:
    """Write bytecode that is used without a look at its source: the digest covers both."""
    subprocess.run(
        [
            *(sys.executable, "-I", "-S", "-W", "ignore", "-m", "compileall", "-qq"),
            *("--invalidation-mode", "unchecked-hash", "-s", str(target), "-p", PACKAGES, str(target)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_COMPILE_TIMEOUT_S,
        check=False,  # packages ship files for other versions of Python, which don't compile
    )


def _checked(folder: Path, packages: Sequence[LockedPackage]) -> Record:
    """The record of what was installed, which must be what the lock names, and fit the SDK."""
    found = {canonical_name(each.name): each for each in importlib.metadata.distributions(path=[str(folder)])}
    wanted = {each.name for each in packages}
    if found.keys() != wanted:
        names = ", ".join(sorted(found.keys() ^ wanted))
        raise InstallerError(f"what was installed is not what the lock names: {names}", "try again")
    requirements = sorted({text for each in found.values() for text in _sdk_requirements(each)})
    problems = unmet(requirements)
    if problems:
        raise InstallerError(
            f"the packages don't fit the SDK of this sidecar: they need {problems[0]}", "lock the plugin again here"
        )
    return Record("", tuple(f"{each.name}=={each.version}" for each in packages), tuple(requirements))


def _sdk_requirements(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    for text in distribution.requires or ():
        try:
            requirement = Requirement(text)
            holds = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        except (InvalidRequirement, RecursionError):
            continue  # an old one of others, which resolvers pass over too
        if holds and is_of_sdk(requirement.name) and requirement.url is None:
            yield f"{requirement.name}{requirement.specifier}"
