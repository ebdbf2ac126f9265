"""Loads one plugin: manifest, copy of its folder, definitions. Its code runs in the `none` sandbox.

MCP servers alone may be asked with more (`asking_grants`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from fumehood.v1 import tool_pb2
from fumehood_sandbox import Level, SandboxError, SandboxUnavailableError

from fumehood_server.config.config import LimitsConfig, SandboxConfig
from fumehood_server.errors import ConfigError, FumehoodError, PluginInvalidError, WorkerUnavailableError
from fumehood_server.model.plugin import Grants, Kind, WorkerSpec
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Isolation, Reason, ToolDefinition
from fumehood_server.plugins.asking_grants import NOTHING_GRANTED, Granted, misplaced_listing
from fumehood_server.plugins.declared_tools import checked_tools, refuse_forks
from fumehood_server.plugins.definition_threads import in_thread
from fumehood_server.plugins.environments.environments import Environment, Environments
from fumehood_server.plugins.environments.errors import EnvironmentUnavailableError
from fumehood_server.plugins.environments.interpreter import DESCRIPTION
from fumehood_server.plugins.environments.plugin_lock import PLUGIN_LOCK_NAME
from fumehood_server.plugins.lock import Pinned
from fumehood_server.plugins.manifest import MANIFEST_NAME, Manifest, check_present, try_manifest
from fumehood_server.plugins.program_places import writable_program
from fumehood_server.plugins.refusal import PluginRefusedError, invalid
from fumehood_server.plugins.specs import SpecMaker, build_program
from fumehood_server.plugins.store import CopyDamagedError, PluginSources, Stored
from fumehood_server.plugins.store.ignore import IGNORE_NAME
from fumehood_server.settling import to_its_end

DESCRIBE_TIMEOUT_S = 60.0
"""Backstop above every timeout within `describe` itself."""

_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named [^\n]*\s*\Z")
_REASON_CODES = {Code.CONFIG_SANDBOX_UNAVAILABLE: "sandbox_unavailable", Code.CONFIG_PLUGIN_INVALID: "plugin_invalid"}


class Described(Protocol):
    """The part of a plugin's `Ready` frame that describes it."""

    @property
    def tools(self) -> Sequence[tool_pb2.ToolDefinition]:
        """The definitions of its `Ready` frame."""

    @property
    def version(self) -> str:
        """The version that its code declares; it may be empty."""

    @property
    def fork_problem(self) -> str:
        """Why no process can be forked for each call after its import. Empty where that was not found out, too."""


Describe = Callable[[WorkerSpec], Awaitable[Described]]
"""Starts a plugin by a spec of level `none`, or what `asking_grants` has, reads its `Ready` frame and ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPlugin:
    """A plugin as it was read."""

    manifest: Manifest
    """Its `folder` is the author's, for messages."""
    digest: str
    files: Path
    """What its workers are shown: the copy with this digest, or for `plugin dev` the folder."""
    tools: tuple[ToolDefinition, ...]
    """Sorted by name."""
    code_version: str = ""
    """The version that its code declares. Empty where it declares none, or was not started."""
    fork_problem: str = ""
    """Why its tools that name no isolation have the isolation `process`: its import can't be forked. Empty where it
    can, or was not started."""
    environment: Environment | None = None
    """The packages of its lock, or its folder as it was built. None: it needs neither, or `environment_problem` says
    why they can't be used."""
    environment_problem: Reason | None = None
    pin_remedy: str = ""
    """As that of `load_plugin`."""
    definitions_unread: bool = False
    """Whether `tools` are those that are pinned, since whoever has changed its files isn't asked with grants."""

    @property
    def packages(self) -> Path | None:
        """The folder of the packages of its lock."""
        return _packages(self.manifest, self.environment)

    @property
    def run_folder(self) -> Path:
        """The folder that it runs from: as it was built, where it has a build command."""
        return _run_folder(self.manifest, self.files, self.environment)

    def pinned(self) -> Pinned:
        """The plugin's entry in the lock."""
        return Pinned(version=self.manifest.version, digest=self.digest, tools=self.tools)


def _packages(manifest: Manifest, environment: Environment | None) -> Path | None:
    return environment.contents if environment and manifest.takes_packages else None


def _run_folder(manifest: Manifest, files: Path, environment: Environment | None) -> Path:
    return environment.contents if environment and manifest.build else files


async def load_plugin(
    folder: Path,
    *,
    sources: PluginSources,
    describe: Describe,
    limits: LimitsConfig,
    sandbox: SandboxConfig,
    environments: Environments,
    pins: Callable[[str], Pinned | None],
    locked: bool = False,
    granted: Granted = NOTHING_GRANTED,
    by_command: bool = False,
    pin_remedy: str = "",
) -> LoadedPlugin:
    """Read the plugin in `folder` and put it into `sources`, where it is described and run from.

    `pins` returns the pin under a name: a folder with the pinned digest has the pinned definitions, and its code isn't
    run to read them again, unless this release doesn't take them. `granted` is what an MCP server may be asked with.
    With `locked`, a plugin without a pin is refused before its code is run. `by_command`: somebody's command asks, who
    is told what runs; a server that needs its grants to list its tools is started for nobody else. `pin_remedy` is how
    to accept the plugin where that isn't `fumehood plugin add`.

    Raises:
        PluginRefusedError: it can't be read or described.
    """
    # No task: asyncio.run cancels those when it ends, and the thread would go on writing what is removed meanwhile.
    reading = asyncio.get_running_loop().run_in_executor(None, _read_files, folder, sources)
    manifest, stored = await to_its_end(reading)
    pinned = pins(manifest.name)
    if pinned is None and locked:
        message = f"{manifest.name} is not pinned in the lock file, and --locked pins nothing by itself"
        raise PluginRefusedError(manifest.name, (Reason("not_pinned", message, add_remedy(folder, pin_remedy)),))
    environment, problem = await asyncio.to_thread(_find_environment, environments, manifest, stored, folder)
    code_version = fork_problem = ""
    if granted.list_with_grants and (misplaced := misplaced_listing(manifest)):
        raise PluginRefusedError(manifest.name, (Reason("plugin_invalid", misplaced, "remove it"),))
    kept = granted.list_with_grants and not by_command
    if kept and (pinned is None or not pinned.is_usable):
        message = f"{manifest.name} is asked for its tools with its grants, which no sidecar does by itself"
        raise PluginRefusedError(manifest.name, (Reason("not_pinned", message, add_remedy(folder, pin_remedy)),))
    if not manifest.kind.describes_itself:
        tools = manifest.tools
    elif (pinned is not None and kept) or (pinned is not None and pinned.digest == stored.digest and pinned.is_usable):
        tools = pinned.tools
    elif problem is not None:
        raise PluginRefusedError(manifest.name, (problem,))
    else:
        described = await _describe(
            manifest, stored, describe, environment=environment, limits=limits, sandbox=sandbox, granted=granted
        )
        code_version = described.version
        default = Isolation.PROCESS if described.fork_problem else manifest.kind.default_isolation
        # In a thread: what a plugin declares may take long to check.
        tools = await in_thread(checked_tools, manifest, described.tools, lambda _: default)
        if described.fork_problem:
            refuse_forks(manifest, tools, described.fork_problem)
            if any(tool.isolation == tool_pb2.ISOLATION_UNSPECIFIED for tool in described.tools):
                fork_problem = described.fork_problem
        try:
            await asyncio.to_thread(sources.verify, stored.digest)
        except CopyDamagedError as exc:
            raise _changed_meanwhile(manifest.name, folder) from exc
    return LoadedPlugin(
        manifest=manifest,
        digest=stored.digest,
        files=stored.path,
        tools=tuple(sorted(tools, key=lambda tool: tool.name)),
        code_version=code_version,
        fork_problem=fork_problem,
        environment=environment,
        environment_problem=problem,
        pin_remedy=pin_remedy,
        definitions_unread=kept and pinned is not None and pinned.digest != stored.digest,
    )


def add_remedy(folder: Path, pin_remedy: str = "") -> str:
    """The remedy that tells the operator how to accept a plugin. `pin_remedy`: as that of `load_plugin`."""
    return pin_remedy or f"look at what it asks for and pin it: fumehood plugin add {folder}"


def _read_files(folder: Path, sources: PluginSources) -> tuple[Manifest, Stored]:
    """The manifest of what is in `sources` now, with the author's folder as its own.

    What is wrong with it is told where its author has it.
    """
    try:
        check_present(folder.resolve())  # before a folder that was named by mistake is copied
        stored = sources.put(folder)
    except PluginInvalidError as exc:
        authored = try_manifest(folder)
        raise invalid(authored.name, authored.problems or (exc,)) from exc
    except ConfigError as exc:
        name = try_manifest(folder).name
        raise PluginRefusedError(name, (Reason("copy_failed", f"{exc.path}: {exc.problem}", exc.hint),)) from exc
    copied = try_manifest(stored.path)
    if copied.manifest is None:
        authored = try_manifest(folder)
        problems = (_left_out(folder.resolve(), stored.path, each) for each in copied.problems)
        raise invalid(authored.name, authored.problems or tuple(problems))
    return replace(copied.manifest, folder=folder.resolve()), stored


def _left_out(folder: Path, copy: Path, problem: ConfigError) -> PluginInvalidError:
    """A problem that the folder doesn't have and its copy has: something that is needed is ignored."""
    text = problem.problem.replace(str(copy), str(folder))
    return PluginInvalidError(
        folder / MANIFEST_NAME,
        f"{text}, of which what is ignored is no part",
        line=problem.line,
        key=problem.key,
        hint=f'a line such as "!/target/" in {IGNORE_NAME} takes in what the default rules leave out',
    )


def _changed_meanwhile(name: str, folder: Path) -> PluginRefusedError:
    return PluginRefusedError(name, (Reason("plugin_changed", f"{folder} changed while it was read", "read it again"),))


def _find_environment(
    environments: Environments, manifest: Manifest, stored: Stored, named: Path
) -> tuple[Environment | None, Reason | None]:
    """The packages of the plugin's lock or its folder as it was built, verified, or why they can't be used."""
    found: Environment | None = None
    try:
        if manifest.takes_packages:
            found = environments.of_plugin(manifest.name, stored.path, manifest.dependencies, named=named)
        elif manifest.build:
            found = environments.of_build(manifest.name, stored.digest, manifest.build, named=named)
    except PluginInvalidError as exc:
        raise invalid(manifest.name, (exc,)) from exc
    except EnvironmentUnavailableError as exc:
        return None, exc.reason
    problem = environments.verify(found) if found else None
    return (None, problem) if problem else (found, None)


async def _describe(
    manifest: Manifest,
    stored: Stored,
    describe: Describe,
    *,
    environment: Environment | None,
    limits: LimitsConfig,
    sandbox: SandboxConfig,
    granted: Granted,
) -> Described:
    """What a plugin's code says of itself."""
    if manifest.remote is not None and (problem := granted.refusal(manifest.name, manifest.remote)) is not None:
        raise PluginRefusedError(manifest.name, (problem,))
    try:
        maker = _spec_maker(manifest, stored, environment, limits, sandbox)
    except ConfigError as exc:
        raise invalid(manifest.name, (exc,)) from exc
    if manifest.remote is not None or granted.list_with_grants:
        maker = replace(maker, grants=granted.grants)
    elif granted.grants.engine:  # of which a server is told, that may then have more tools
        maker = replace(maker, grants=replace(maker.grants, engine=granted.grants.engine))
    if granted.list_with_grants and (reasons := writable_program(granted.writable, manifest.name, maker.built)):
        raise PluginRefusedError(manifest.name, reasons)
    spec = (maker.listing_spec if granted.list_with_grants else maker.describing_spec)(granted.secrets)
    return await _ready(manifest, stored, spec, describe, "could not be asked for its tools")


async def try_start(
    loaded: LoadedPlugin, *, describe: Describe, limits: LimitsConfig, sandbox: SandboxConfig
) -> ConfigError | None:
    """Start a plugin that isn't started to be loaded, without grants, until it says Ready.

    Returns why it can't be tried on this machine, which may lack its program.

    Raises:
        PluginRefusedError: it was started, and did not become ready.
    """
    stored = Stored(loaded.digest, loaded.files)
    try:
        maker = _spec_maker(loaded.manifest, stored, loaded.environment, limits, sandbox)
    except ConfigError as exc:
        return exc
    # What it needs in order to run at all, such as Node's address space, its tools say.
    levels = list(Level)
    first = min(loaded.tools, key=lambda tool: levels.index(tool.side_effects))
    spec = maker.spec(first.side_effects, first.limits)
    await _ready(loaded.manifest, stored, spec, describe, "did not start")
    return None


def _spec_maker(
    manifest: Manifest, stored: Stored, environment: Environment | None, limits: LimitsConfig, sandbox: SandboxConfig
) -> SpecMaker:
    """Specs without grants."""
    return SpecMaker(
        manifest=manifest,
        digest=stored.digest,
        built=build_program(
            manifest, _run_folder(manifest, stored.path, environment), _packages(manifest, environment)
        ),
        grants=Grants(max_side_effects=Level.NONE),
        limits=limits,
        sandbox=sandbox,
        max_workers=1,
    )


async def _ready(manifest: Manifest, stored: Stored, spec: WorkerSpec, describe: Describe, failed: str) -> Described:
    """The `Ready` of a plugin that is started for it and ended. `failed` says what failed if there is none."""
    try:
        async with asyncio.timeout(DESCRIBE_TIMEOUT_S):
            return await describe(spec)
    except ConfigError as exc:
        raise invalid(manifest.name, (exc,)) from exc
    except SandboxUnavailableError as exc:
        raise PluginRefusedError(manifest.name, (Reason("sandbox_unavailable", str(exc), exc.remedy),)) from exc
    except TimeoutError as exc:
        message = f"{manifest.name} did not describe itself within {DESCRIBE_TIMEOUT_S:g} s"
        raise PluginRefusedError(manifest.name, (Reason("describe_failed", message),)) from exc
    except WorkerUnavailableError as exc:
        # Tracebacks name the copy; who reads them wants the file that can be mended.
        shown = exc.error.message.replace(str(stored.path), str(manifest.folder))
        message = f"{manifest.name} {failed}: {shown}"
        code = _REASON_CODES.get(exc.error.code, "describe_failed")
        remedy = _missed(manifest, stored, shown) or _import_remedy(manifest, stored, shown)
        raise PluginRefusedError(manifest.name, (Reason(code, message, remedy),)) from exc
    except (FumehoodError, SandboxError, OSError) as exc:
        message = f"{manifest.name} {failed}: {exc}"
        raise PluginRefusedError(manifest.name, (Reason("describe_failed", message),)) from exc


def _import_remedy(manifest: Manifest, stored: Stored, message: str) -> str:
    """What to do where a module is missing. Empty where that isn't the plugin's last word."""
    if manifest.kind is not Kind.PYTHON or not _MISSING_MODULE.search(message):
        return ""
    lock = manifest.folder / PLUGIN_LOCK_NAME
    there = (
        f"no package of {lock}" if (stored.path / PLUGIN_LOCK_NAME).is_file() else f"there is no {lock}, and nothing"
    )
    remedy = f"{there} has it for {DESCRIPTION}: add the package to `dependencies` in {MANIFEST_NAME}"
    return f"{remedy}, and run: fumehood plugin lock {manifest.folder}"


def _missed(manifest: Manifest, stored: Stored, said: str) -> str:
    """The remedy for a module that lies in a virtual environment which is no part of the plugin."""
    left_out = (manifest.folder / ".venv").is_dir() and not (stored.path / ".venv").is_dir()
    if not (left_out and "ModuleNotFoundError" in said):
        return ""
    return f"its .venv is ignored: a line `!.venv/` in {IGNORE_NAME} takes it in"
