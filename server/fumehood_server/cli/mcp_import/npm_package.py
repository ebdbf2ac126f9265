"""Resolves packages of npm's registry into package.json and a lock without addresses. No code of a package runs."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import SplitResult, urlsplit

from fumehood_server.cli.mcp_import.launchers import NotImportableError, npm_name
from fumehood_server.cli.mcp_import.private_addresses import private_addresses
from fumehood_server.plugins.environments.errors import InstallerError
from fumehood_server.plugins.environments.installer import run_installer

PACKAGE_NAME, LOCK_NAME, RC_NAME = "package.json", "package-lock.json", ".npmrc"
_MAX_LOCK_BYTES = 32 * 1024 * 1024
_TIME_LIMIT_S = 600.0
_MAX_BYTES = 1024**3
_ASK_TIME_LIMIT_S = 60.0
_REGISTRY = re.compile(r'^(; )?registry = "([^"]*)"', re.MULTILINE)
_RC = "audit=false\nfund=false\nupdate-notifier=false\nfetch-retries=1\nfetch-retry-mintimeout=1000\n"
"""By itself npm tries for minutes to reach what it may not."""
_KEY = "fumehood"
_RESOLVE = (
    *("install", "--package-lock-only", "--ignore-scripts", "--save-exact", "--no-audit", "--no-fund"),
    *("--omit-lockfile-registry-resolved", "--lockfile-version=3", "--no-update-notifier", "--loglevel=error"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NpmPackage:
    """A resolved package: the files of a plugin that install it, and what it is started by."""

    name: str
    version: str
    program: str
    """Path of its script, from the plugin's folder."""
    files: Mapping[str, str]
    build: tuple[str, ...]
    build_host: str
    """The registry, as NAME:PORT."""
    build_private: tuple[str, ...]
    """Its addresses that are not public, as NAME=ADDRESS: whoever configured npm for it trusts it."""
    packages: int
    scripts: tuple[str, ...]
    """Packages that run scripts when they are installed, which they do in a sandbox."""


def resolve_npm(
    plugin: str, requirements: Sequence[str], script: str, old: Path | None, say: Callable[[str], None]
) -> NpmPackage:
    """Choose versions. `old` is the folder of an earlier import, whose lock is kept where it asked for the same.

    Raises:
        NotImportableError: npm is missing, or there is no such package or program.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise NotImportableError("installer", "npm was not found, which installs it", "Install Node.js with npm.")
    kept = _kept(old, requirements) if old else None
    if kept is None:
        say(f"resolving {', '.join(requirements)} with npm")
        with tempfile.TemporaryDirectory(prefix="fumehood-npm-") as name:
            kept = _resolve(npm, plugin, requirements, Path(name))
    package, lock = kept
    return _described(npm, package, lock, requirements, script)


def _kept(old: Path, requirements: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    try:
        package = json.loads((old / PACKAGE_NAME).read_bytes())
        if package[_KEY] != {"requirements": list(requirements)}:
            return None
        return package, json.loads((old / LOCK_NAME).read_bytes())
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _resolve(npm: str, plugin: str, requirements: Sequence[str], folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    about = {"name": f"fumehood-{plugin}", "version": "1.0.0", "private": True}
    (folder / PACKAGE_NAME).write_text(json.dumps(about))
    try:
        run_installer(
            (npm, *_RESOLVE, "--", *requirements),
            folder,
            what="resolving with npm",
            time_limit_s=_TIME_LIMIT_S,
            max_bytes=_MAX_BYTES,
        )
    except InstallerError as error:
        raise NotImportableError("not_resolved", error.problem, "Look at its name and version.") from error
    lock_path = folder / LOCK_NAME
    if not lock_path.is_file() or lock_path.stat().st_size > _MAX_LOCK_BYTES:
        raise NotImportableError("not_resolved", "npm wrote no lock of a usable size", "Use npm 9 or newer.")
    try:
        package, lock = json.loads((folder / PACKAGE_NAME).read_bytes()), json.loads(lock_path.read_bytes())
        for each in lock["packages"].values():
            address = each.pop("resolved", "")
            if not each.get("link") and address and not address.startswith(("http://", "https://")):
                what = "it needs a package that is in no registry"
                raise NotImportableError("not_a_package", what, "Write a plugin of kind mcp around it by hand.")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotImportableError("not_resolved", "npm wrote what is no lock", "Use npm 9 or newer.") from error
    package[_KEY] = {"requirements": list(requirements)}
    return package, lock


def _described(
    npm: str, package: dict[str, Any], lock: dict[str, Any], requirements: Sequence[str], script: str
) -> NpmPackage:
    names = [npm_name(each)[0] for each in requirements]
    packages: dict[str, dict[str, Any]] = {key: value for key, value in lock["packages"].items() if key}
    try:
        found = packages[f"node_modules/{names[0]}"]
        version = str(found["version"])
    except KeyError as error:
        raise NotImportableError("not_resolved", f"npm did not resolve {names[0]}", "Import it again.") from error
    registry, is_default = _registry(npm)
    scripts = tuple(
        sorted({key.rpartition("node_modules/")[2] for key, each in packages.items() if each.get("hasInstallScript")})
    )
    files = {
        PACKAGE_NAME: json.dumps(package, indent=2) + "\n",
        LOCK_NAME: json.dumps(lock, indent=2) + "\n",
        # The build doesn't see the configuration of whoever imports.
        RC_NAME: _RC + ("" if is_default else f"registry={registry.geturl()}\n"),
    }
    return NpmPackage(
        name=names[0],
        version=version,
        program=_program(names, packages, script),
        files=files,
        build=("npm", "ci") if scripts else ("npm", "ci", "--ignore-scripts"),
        build_host=f"{registry.hostname}:{registry.port or (80 if registry.scheme == 'http' else 443)}",
        build_private=private_addresses(str(registry.hostname)),
        packages=len(packages),
        scripts=scripts,
    )


def _program(names: Sequence[str], packages: Mapping[str, dict[str, Any]], script: str) -> str:
    """The script that npx would start: the one asked for, the only one, or the one of the package's own name."""
    offered: dict[str, str] = {}
    for name in reversed(names):
        programs = packages.get(f"node_modules/{name}", {}).get("bin")
        if isinstance(programs, str):
            programs = {name.rpartition("/")[2]: programs}
        for word, path in (programs or {}).items():
            inside = PurePosixPath(str(path))
            if not inside.is_absolute() and ".." not in inside.parts:
                offered[str(word)] = str(PurePosixPath("node_modules", name, inside))
    wanted = script or (names[0].rpartition("/")[2] if len(set(offered.values())) > 1 else next(iter(offered), ""))
    if wanted in offered:
        return offered[wanted]
    if not offered:
        raise NotImportableError("no_program", f"{names[0]} has no program to start", "Name the server's package.")
    listed = ", ".join(sorted(offered))
    what = f"{names[0]} has no program {wanted}" if script else f"{names[0]} has several programs"
    raise NotImportableError("no_program", f"{what}: {listed}", f"Write npx -p {names[0]} PROGRAM.")


def _registry(npm: str) -> tuple[SplitResult, bool]:
    """The registry that npm is configured for, and whether it is the one that npm has by itself."""
    with tempfile.TemporaryDirectory(prefix="fumehood-npm-") as name:
        try:
            text = run_installer(
                (npm, "config", "list", "-l", "--loglevel=error"),
                Path(name),
                what="asking npm for its registry",
                time_limit_s=_ASK_TIME_LIMIT_S,
            )
        except InstallerError as error:
            raise NotImportableError("installer", error.problem, "Look at npm's configuration.") from error
    # The defaults come first, commented out where they are overridden; what holds comes last.
    found = [(overridden, address.rstrip("/")) for overridden, address in _REGISTRY.findall(text)]
    holds = [address for overridden, address in found if not overridden]
    split = urlsplit(holds[-1] if holds else "")
    if split.scheme not in {"http", "https"} or not split.hostname:
        raise NotImportableError("installer", "npm names no registry", "Look at npm's configuration.")
    if split.username or split.password:
        what = "npm's registry is named with a password, which is not written into a plugin"
        raise NotImportableError("installer", what, "Name the registry without one.")
    return split, holds[-1] == found[0][1]
