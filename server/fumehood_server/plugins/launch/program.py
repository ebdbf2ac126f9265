"""Builds a plugin's program: command line, mounts and environment, by kind."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from fumehood_sandbox import Executable, Mount, Program, PythonModule, python_runtime, system_runtime

from fumehood_server.errors import PluginInvalidError
from fumehood_server.model.plugin import Kind
from fumehood_server.plugins.launch import executables, sdk_site
from fumehood_server.plugins.launch.console_scripts import console_scripts

SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
"""PATH inside, and what the sidecar's own PATH is extended by when a command is looked up."""

_THREAD_COUNTS = (
    "BLIS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""What libraries read that otherwise start a thread for each processor, some at their import. A process of more than
one thread can't be forked, and threads above `cpus` only wait for one another."""


_GIT_ENVIRONMENT = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
"""Inside, the plugin's user owns nothing that it was granted, and git refuses what others own."""

_PYTHON_NAMES = ("python", "python3")
_THIS_PYTHON = "python"
"""What the shim of kind `mcp` knows its own interpreter by."""


@dataclass(frozen=True, slots=True)
class McpLaunch:
    """What a manifest of kind `mcp` says of its server."""

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    secrets: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RemoteLaunch:
    """What a manifest of kind `mcp` says of a server over HTTP."""

    url: str
    headers: tuple[tuple[str, str], ...]
    secret_headers: tuple[tuple[str, str, str], ...]
    """Field, secret, and what stands before its value."""
    authorities: str
    """A file of the plugin's folder. Empty: none."""


@dataclass(frozen=True, slots=True)
class BuiltProgram:
    """A program and the parts of its sandbox policy that depend on it."""

    program: Program
    runtime: tuple[Mount, ...]
    """For `Policy.runtime`."""
    environment: tuple[tuple[str, str], ...]
    """For `Policy.environment`."""
    working_directory: str
    """For `Policy.working_directory`: the plugin's folder for an executable, so that its own files can be named."""


def build(
    kind: Kind,
    folder: Path,
    *,
    entrypoint: str = "",
    command: tuple[str, ...] = (),
    binary: str = "",
    binaries: tuple[str, ...] = (),
    threads: int = 1,
    packages: Path | None = None,
    environment: tuple[tuple[str, str], ...] = (),
    secrets: tuple[tuple[str, str], ...] = (),
    remote: RemoteLaunch | None = None,
) -> BuiltProgram:
    """Decide how a plugin in `folder` is run. Looks files up, starts nothing.

    `entrypoint` and `threads` are read for kind `python`, `command` for `executable` and `mcp`, `environment` and
    `secrets` for `mcp`, as `remote`, which stands in place of a command; `binary` for `cli`, and `binaries` for all
    that its tools run. Of several, those that are there are mounted: the tools of the others can't run
    (`availability`). `packages` is the folder of the packages that a plugin's lock names, for `python` in place of a
    virtual environment of its own.

    Raises:
        PluginInvalidError: the command, binary or entrypoint is malformed or can't be found; its `key` says which.
        SdkMissingError: the sidecar's installation lacks the SDK, which kinds `python`, `cli` and `mcp` run on.
    """
    folder = folder.resolve()
    if kind is Kind.PYTHON:
        return _python(folder, entrypoint, threads, packages)
    if remote is not None:
        return _remote(folder, remote)
    if kind is Kind.MCP:
        return _mcp(folder, McpLaunch(command, environment, secrets), packages)
    if kind is Kind.CLI:
        return _cli(folder, tuple(dict.fromkeys((binary, *binaries))))
    return _executable(folder, command)


def _python(folder: Path, entrypoint: str, threads: int, packages: Path | None) -> BuiltProgram:
    module, colon, attribute = entrypoint.partition(":")
    if not (colon and _is_dotted(attribute) and _is_dotted(module)):
        raise _invalid(folder, "entrypoint", f'"{entrypoint}" is not of the form "module:attribute"')
    own_site = None if packages else _own_site(folder)
    roots = (folder, own_site) if own_site else (folder,)
    relative = Path(*module.split("."))
    if not any((root / relative).is_dir() or (root / relative).with_suffix(".py").is_file() for root in roots):
        raise _invalid(
            folder,
            "entrypoint",
            f"module {module} is not in the folder",
            hint=f"expected {relative.with_suffix('.py')}",
        )
    installed = (Mount(str(packages), sdk_site.PACKAGES),) if packages else ()
    arguments = (entrypoint, str(folder), *(mount.target for mount in installed))
    return BuiltProgram(
        # The SDK itself puts the plugin's packages after the standard library on sys.path.
        program=PythonModule("fumehood_sdk.main", argv=arguments, path=(sdk_site.SITE, str(folder))),
        runtime=(*system_runtime(), *python_runtime(), *sdk_site.mounts(), *installed, _own(folder)),
        environment=_environment(python=True, threads=threads),
        working_directory="/tmp",  # noqa: S108 - the sandbox's own, a private tmpfs
    )


def _cli(folder: Path, binaries: tuple[str, ...]) -> BuiltProgram:
    path = _search_path()
    found = {name: executables.find_executable(name, folder, search_path=path) for name in binaries}
    there = {name: each for name, each in found.items() if each is not None}
    if not there:
        raise _invalid(folder, "binary", f'"{binaries[0]}" was not found', hint="install it, or correct the name")
    first = there[binaries[0]].path if binaries[0] in there else ""
    others = (f"{name}={each.path}" for name, each in there.items() if name != binaries[0])
    mounts = dict.fromkeys(mount for each in there.values() for mount in each.mounts)
    environment = dict(_environment(python=False))
    if "git" in there:
        environment |= _GIT_ENVIRONMENT
    return BuiltProgram(
        program=PythonModule(
            "fumehood_sdk.adapters.cli", argv=(str(folder / "plugin.toml"), first, *others), path=(sdk_site.SITE,)
        ),
        runtime=(*system_runtime(), *python_runtime(), *sdk_site.mounts(), *mounts, _own(folder)),
        environment=tuple(sorted(environment.items())),
        working_directory="/tmp",  # noqa: S108 - the sandbox's own, a private tmpfs
    )


def _mcp(folder: Path, launch: McpLaunch, packages: Path | None) -> BuiltProgram:
    name, *arguments = launch.command or ("",)
    installed = (Mount(str(packages), sdk_site.PACKAGES),) if packages else ()
    environment = dict(_environment(python=True, threads=1)) | _GIT_ENVIRONMENT
    # A server that lists a set in its definitions would declare others at each start (-R in python(1)).
    environment["PYTHONHASHSEED"] = "0"
    shown: tuple[Mount, ...] = ()
    script = console_scripts(packages).get(name) if packages else None
    if script is not None:
        arguments = ["-c", script, *arguments]
    if script is not None or name in _PYTHON_NAMES:
        program = _THIS_PYTHON
    else:
        found = executables.find_executable(name, folder, search_path=_search_path())
        if found is None:
            hint = "install it, name a file of the plugin, such as ./server, or a script of its `dependencies`"
            raise _invalid(folder, "command", f'"{name}" was not found, or is not executable', hint=hint)
        program, shown = found.path, found.mounts
    if packages:
        # A lock leaves out what the SDK brings.
        environment["PYTHONPATH"] = f"{sdk_site.PACKAGES}:{sdk_site.SITE}"
    text = json.dumps(
        {
            "command": [program, *arguments],
            "environment": dict(launch.environment),
            "secrets": dict(launch.secrets),
        }
    )
    return BuiltProgram(
        program=PythonModule("fumehood_sdk.adapters.mcp.main", argv=(text,), path=(sdk_site.SITE,)),
        runtime=(*system_runtime(), *python_runtime(), *sdk_site.mounts(), *installed, *shown, _own(folder)),
        environment=tuple(sorted(environment.items())),
        working_directory=str(folder),
    )


def _remote(folder: Path, launch: RemoteLaunch) -> BuiltProgram:
    secret_headers = {name: [secret, prefix] for name, secret, prefix in launch.secret_headers}
    text = json.dumps(
        {
            "url": launch.url,
            "headers": dict(launch.headers),
            "secret_headers": secret_headers,
            "authorities": str(folder / launch.authorities) if launch.authorities else "",
        }
    )
    environment = dict(_environment(python=True, threads=1)) | {"PYTHONPATH": sdk_site.SITE}
    return BuiltProgram(
        program=PythonModule("fumehood_sdk.adapters.mcp.main", argv=(text,), path=(sdk_site.SITE,)),
        runtime=(*system_runtime(), *python_runtime(), *sdk_site.mounts(), _own(folder)),
        environment=tuple(sorted(environment.items())),
        working_directory="/tmp",  # noqa: S108 - the sandbox's own, a private tmpfs
    )


def _executable(folder: Path, command: tuple[str, ...]) -> BuiltProgram:
    if not command or not command[0]:
        raise _invalid(folder, "command", "the command is empty")
    found = executables.find_executable(command[0], folder, search_path=_search_path())
    if found is None:
        hint = "a file of the plugin is named from its folder, such as ./server"
        raise _invalid(folder, "command", f'"{command[0]}" was not found, or is not executable', hint=hint)
    return BuiltProgram(
        program=Executable((found.path, *command[1:])),
        runtime=(*system_runtime(), *found.mounts, _own(folder)),
        environment=_environment(python=False),
        working_directory=str(folder),
    )


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _own(folder: Path) -> Mount:
    return Mount(str(folder), str(folder))


def _own_site(folder: Path) -> Path | None:
    """The packages that the plugin brings in a virtual environment of its own, for this interpreter's version."""
    site = folder / ".venv" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    return site if site.is_dir() else None


def _search_path() -> str:
    own = os.environ.get("PATH", "")
    return f"{own}:{SEARCH_PATH}" if own else SEARCH_PATH


def _environment(*, python: bool, threads: int = 0) -> tuple[tuple[str, str], ...]:
    values = {
        "HOME": "/tmp",  # noqa: S108 - the sandbox's own, a private tmpfs
        "LANG": "C.UTF-8",
        "PATH": SEARCH_PATH,
    }
    if python:
        # The code is mounted read-only: trying to write bytecode costs a failed system call for each module.
        values |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}
    if threads:
        values |= dict.fromkeys(_THREAD_COUNTS, str(threads))
        values["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    return tuple(sorted(values.items()))


def _invalid(folder: Path, key: str, problem: str, *, hint: str = "") -> PluginInvalidError:
    return PluginInvalidError(folder / "plugin.toml", problem, key=f"plugin.{key}", hint=hint)
