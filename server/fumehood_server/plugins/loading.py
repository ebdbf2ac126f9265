"""Loads one plugin from its folder: manifest, digest, definitions. Its code runs only in the `none` sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fumehood.v1 import tool_pb2
from fumehood_sandbox import Level, SandboxError, SandboxUnavailableError

from fumehood_server.config.config import LimitsConfig, SandboxConfig
from fumehood_server.errors import ConfigError, FumehoodError, PluginInvalidError, WorkerUnavailableError
from fumehood_server.model.plugin import Grants, Kind, WorkerSpec
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Reason, ToolDefinition
from fumehood_server.plugins.conversion import from_proto
from fumehood_server.plugins.definitions import FieldProblem, check_definition
from fumehood_server.plugins.digest import folder_digest
from fumehood_server.plugins.launch.program import build
from fumehood_server.plugins.lock import Pinned
from fumehood_server.plugins.manifest import MANIFEST_NAME, Manifest, try_manifest
from fumehood_server.plugins.specs import SpecMaker

DESCRIBE_TIMEOUT_S = 60.0
"""Backstop above every timeout within `describe` itself."""

_MAX_TOOLS = 1024
_REASON_CODES = {Code.CONFIG_SANDBOX_UNAVAILABLE: "sandbox_unavailable", Code.CONFIG_PLUGIN_INVALID: "plugin_invalid"}


class Described(Protocol):
    """The part of a plugin's `Ready` frame that describes it."""

    @property
    def tools(self) -> Sequence[tool_pb2.ToolDefinition]:
        """The definitions of its `Ready` frame."""

    @property
    def version(self) -> str:
        """The version that its code declares; it may be empty."""


Describe = Callable[[WorkerSpec], Awaitable[Described]]
"""Starts a plugin by a spec of level `none`, reads its `Ready` frame and ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPlugin:
    """A plugin as it is on disk."""

    manifest: Manifest
    digest: str
    tools: tuple[ToolDefinition, ...]
    """Sorted by name."""
    code_version: str = ""
    """The version that its code declares. Empty where it declares none, or was not started."""

    def pinned(self) -> Pinned:
        """The plugin's entry in the lock."""
        return Pinned(version=self.manifest.version, digest=self.digest, tools=self.tools)


class PluginRefusedError(FumehoodError):
    """A plugin can't be served as it is. Its author or the operator must act; `reasons` say on what."""

    def __init__(self, name: str, reasons: tuple[Reason, ...], problems: tuple[ConfigError, ...] = ()) -> None:
        """`problems` are those of its files, where they are the reason."""
        super().__init__("; ".join(reason.message for reason in reasons))
        self.name = name
        self.reasons = reasons
        self.problems = problems


async def load_plugin(
    folder: Path,
    *,
    describe: Describe,
    limits: LimitsConfig,
    sandbox: SandboxConfig,
    pins: Callable[[str], Pinned | None],
    locked: bool = False,
) -> LoadedPlugin:
    """Read the plugin in `folder`.

    `pins` returns the pin under a name: a folder with the pinned digest has the pinned definitions, and its code isn't
    run to read them again. With `locked`, a plugin without a pin is refused before its code is run.

    Raises:
        PluginRefusedError: it can't be read or described.
    """
    manifest, digest = await asyncio.to_thread(_read_files, folder)
    pinned = pins(manifest.name)
    if pinned is None and locked:
        message = f"{manifest.name} is not pinned in the lock file, and --locked pins nothing by itself"
        raise PluginRefusedError(manifest.name, (Reason("not_pinned", message, add_remedy(folder)),))
    code_version = ""
    if manifest.kind is not Kind.PYTHON:
        tools = manifest.tools
    elif pinned is not None and pinned.digest == digest:
        tools = pinned.tools
    else:
        tools, code_version = await _describe(manifest, digest, describe, limits, sandbox)
        if await asyncio.to_thread(_read_digest, manifest) != digest:
            reason = Reason("plugin_changed", f"{manifest.folder} changed while it was read", "read it again")
            raise PluginRefusedError(manifest.name, (reason,))
    return LoadedPlugin(
        manifest=manifest,
        digest=digest,
        tools=tuple(sorted(tools, key=lambda tool: tool.name)),
        code_version=code_version,
    )


def add_remedy(folder: Path) -> str:
    """The remedy that tells the operator how to accept a plugin."""
    return f"look at what it asks for and pin it: fumehood plugin add {folder}"


def _read_files(folder: Path) -> tuple[Manifest, str]:
    reading = try_manifest(folder)
    if reading.manifest is None:
        raise _invalid(reading.name, reading.problems)
    return reading.manifest, _read_digest(reading.manifest)


def _read_digest(manifest: Manifest) -> str:
    try:
        return folder_digest(manifest.folder)
    except PluginInvalidError as exc:
        raise _invalid(manifest.name, (exc,)) from exc


def _invalid(name: str, problems: tuple[ConfigError, ...]) -> PluginRefusedError:
    reasons = tuple(Reason("plugin_invalid", str(each), "mend it and reload the plugin") for each in problems)
    return PluginRefusedError(name, reasons, problems)


async def _describe(
    manifest: Manifest, digest: str, describe: Describe, limits: LimitsConfig, sandbox: SandboxConfig
) -> tuple[tuple[ToolDefinition, ...], str]:
    """The definitions of a plugin's code, and its version."""
    try:
        maker = _spec_maker(manifest, digest, limits, sandbox)
    except ConfigError as exc:
        raise _invalid(manifest.name, (exc,)) from exc
    described = await _ready(manifest, maker.describing_spec(), describe, "could not be asked for its tools")
    return checked_tools(manifest, described.tools), described.version


async def try_start(
    loaded: LoadedPlugin, *, describe: Describe, limits: LimitsConfig, sandbox: SandboxConfig
) -> ConfigError | None:
    """Start a plugin that isn't started to be loaded, without grants, until it says Ready.

    Returns why it can't be tried on this machine, which may lack its program.

    Raises:
        PluginRefusedError: it was started, and did not become ready.
    """
    try:
        maker = _spec_maker(loaded.manifest, loaded.digest, limits, sandbox)
    except ConfigError as exc:
        return exc
    # What it needs in order to run at all, such as Node's address space, its tools say.
    levels = list(Level)
    first = min(loaded.tools, key=lambda tool: levels.index(tool.side_effects))
    await _ready(loaded.manifest, maker.spec(first.side_effects, first.limits), describe, "did not start")
    return None


def _spec_maker(manifest: Manifest, digest: str, limits: LimitsConfig, sandbox: SandboxConfig) -> SpecMaker:
    """Specs without grants."""
    return SpecMaker(
        manifest=manifest,
        digest=digest,
        built=build(
            manifest.kind,
            manifest.folder,
            entrypoint=manifest.entrypoint,
            command=manifest.command,
            binary=manifest.binary,
            binaries=manifest.binaries,
        ),
        grants=Grants(max_side_effects=Level.NONE),
        limits=limits,
        sandbox=sandbox,
        max_workers=1,
    )


async def _ready(manifest: Manifest, spec: WorkerSpec, describe: Describe, failed: str) -> Described:
    """The `Ready` of a plugin that is started for it and ended. `failed` says what failed if there is none."""
    try:
        async with asyncio.timeout(DESCRIBE_TIMEOUT_S):
            return await describe(spec)
    except ConfigError as exc:
        raise _invalid(manifest.name, (exc,)) from exc
    except SandboxUnavailableError as exc:
        raise PluginRefusedError(manifest.name, (Reason("sandbox_unavailable", str(exc), exc.remedy),)) from exc
    except TimeoutError as exc:
        message = f"{manifest.name} did not describe itself within {DESCRIBE_TIMEOUT_S:g} s"
        raise PluginRefusedError(manifest.name, (Reason("describe_failed", message),)) from exc
    except WorkerUnavailableError as exc:
        message = f"{manifest.name} {failed}: {exc.error.message}"
        code = _REASON_CODES.get(exc.error.code, "describe_failed")
        raise PluginRefusedError(manifest.name, (Reason(code, message),)) from exc
    except (FumehoodError, SandboxError, OSError) as exc:
        message = f"{manifest.name} {failed}: {exc}"
        raise PluginRefusedError(manifest.name, (Reason("describe_failed", message),)) from exc


def checked_tools(manifest: Manifest, declared: Sequence[tool_pb2.ToolDefinition]) -> tuple[ToolDefinition, ...]:
    """The definitions that a plugin's code declares.

    Raises:
        PluginRefusedError: something is wrong with them.
    """
    path = manifest.folder / MANIFEST_NAME
    problems: list[ConfigError] = []
    tools: dict[str, ToolDefinition] = {}
    if not declared:
        problems.append(PluginInvalidError(path, "the plugin declares no tool", hint="decorate one with @plugin.tool"))
    if len(declared) > _MAX_TOOLS:
        problems.append(PluginInvalidError(path, f"the plugin declares more than {_MAX_TOOLS} tools"))
    for message in declared[:_MAX_TOOLS]:
        definition, found = check_definition(from_proto(message))
        if definition and definition.name in tools:
            found = (FieldProblem("name", "is the name of two tools", "rename one"),)
        elif definition:
            tools[definition.name] = definition
        problems += [
            PluginInvalidError(
                path, f'tool "{message.name[:64]}": `{each.field}` {each.problem}', key=each.field, hint=each.hint
            )
            for each in found
        ]
    if problems:
        raise _invalid(manifest.name, tuple(problems))
    return tuple(tools.values())
