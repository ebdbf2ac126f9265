"""Check of a plugin's folder, and of its start, for `fumehood plugin check` and `fumehood plugin add`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema_rs
from fumehood_sandbox import Level

from fumehood_server.config.config import LimitsConfig, SandboxConfig
from fumehood_server.config.load import default_config
from fumehood_server.errors import ConfigError, PluginInvalidError
from fumehood_server.model.capability import Capability, CapabilityKind, parse_capability
from fumehood_server.model.plugin import Kind
from fumehood_server.model.schema import compile_schema
from fumehood_server.model.text import printable
from fumehood_server.model.tool import Reason, ToolDefinition
from fumehood_server.plugins.asking_grants import NOTHING_GRANTED, Granted
from fumehood_server.plugins.changes import ToolChange, tool_changes
from fumehood_server.plugins.declared_tools import FORK_REMEDY
from fumehood_server.plugins.definitions import definition_digest
from fumehood_server.plugins.environments.environments import Environments, environments_folder
from fumehood_server.plugins.loading import Describe, LoadedPlugin, load_plugin, try_start
from fumehood_server.plugins.lock import Origin, Pinned, pin_plugins, read_lock
from fumehood_server.plugins.mcp_readings import reading_definitions
from fumehood_server.plugins.mcp_tools import server_advice
from fumehood_server.plugins.refusal import PluginRefusedError
from fumehood_server.plugins.store import temporary_store

_SHORT_DESCRIPTION_CHARS = 20
"""Below this a description is advised against: a model chooses a tool by its description alone."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A warning: allowed, and likely a mistake. `tool` is empty when it is about the plugin."""

    tool: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The outcome of checking a folder, without a configuration."""

    folder: Path
    name: str
    loaded: LoadedPlugin | None
    """None when there are problems."""
    problems: tuple[Reason, ...]
    faults: tuple[ConfigError, ...] = ()
    """Those problems that have a file and a line, with both."""
    warnings: tuple[Advice, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether a sidecar would accept it."""
        return self.loaded is not None

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The definitions, sorted by name."""
        return self.loaded.tools if self.loaded else ()

    @property
    def _asking(self) -> tuple[ToolDefinition, ...]:
        """Its tools; of an MCP server without any, what its resources and prompts are read by."""
        return self.tools or (reading_definitions(self.loaded.manifest) if self.loaded else ())

    @property
    def definition_digests(self) -> Mapping[str, str]:
        """Digest of each definition by the tool's name."""
        return {tool.name: definition_digest(tool) for tool in self.tools}

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels that its tools ask for, lowest first."""
        return tuple(level for level in Level if any(tool.side_effects is level for tool in self._asking))

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        """What its tools can't run without, each once."""
        texts = {text for tool in self._asking for text in tool.requires}
        return tuple(parse_capability(text) for text in sorted(texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class PinProposal:
    """A plugin that could be pinned: what it asks for, and how it differs from what is pinned now."""

    report: CheckReport
    lock_path: Path
    pinned: Pinned | None
    """None when nothing is pinned under its name."""

    @property
    def changes(self) -> tuple[ToolChange, ...]:
        """The tools that differ; all of them when nothing is pinned."""
        return tool_changes(self.pinned.tools if self.pinned else (), self.report.tools)

    @property
    def up_to_date(self) -> bool:
        """Whether exactly this is pinned already."""
        loaded = self.report.loaded
        return loaded is not None and self.pinned is not None and self.pinned.same_plugin(loaded.pinned())

    async def accept(self, origin: Origin | None = None) -> None:
        """Pin what the report shows: what has changed on disk since then is not accepted with it.

        `origin` is the archive that its folder was unpacked from.

        Raises:
            ConfigError: the lock can't be read or written.
            PluginRefusedError: the report has problems.
        """
        loaded = self.report.loaded
        if loaded is None:
            raise PluginRefusedError(self.report.name, self.report.problems)
        await asyncio.to_thread(
            pin_plugins, self.lock_path, {loaded.manifest.name: replace(loaded.pinned(), origin=origin)}
        )


async def check_plugin(
    folder: Path,
    *,
    describe: Describe,
    limits: LimitsConfig | None = None,
    sandbox: SandboxConfig | None = None,
    environments: Environments | None = None,
    granted: Granted = NOTHING_GRANTED,
) -> CheckReport:
    """Read the plugin in `folder` as a sidecar would, with no lock, and start it until it says Ready.

    It is started without a grant, but for an MCP server that is asked for its tools with what of `granted` it takes.

    Problems are in the report.
    It is run from a copy that is removed afterwards: what is ignored is missing here as it will be there.
    """
    defaults = default_config(Path("/"))
    limits = limits or defaults.limits
    sandbox = sandbox or SandboxConfig()
    untried: ConfigError | None = None
    try:
        with temporary_store() as copies:
            loaded = await load_plugin(
                folder,
                sources=copies,
                describe=describe,
                limits=limits,
                sandbox=sandbox,
                environments=environments or Environments(environments_folder(defaults)),
                pins=lambda _: None,
                granted=granted,
                by_command=True,
            )
            problem = loaded.environment_problem
            if problem is None and not loaded.manifest.kind.describes_itself:  # which has been started to be loaded
                untried = await try_start(loaded, describe=describe, limits=limits, sandbox=sandbox)
    except PluginRefusedError as exc:
        return CheckReport(folder=folder, name=exc.name, loaded=None, problems=exc.reasons, faults=exc.problems)
    if untried is not None:  # what lies in the copy, its author knows in the folder
        fault = PluginInvalidError(folder / "plugin.toml", untried.problem, key=untried.key, hint=untried.hint)
        problem = Reason("binary_missing", str(fault), fault.hint)
        return CheckReport(folder=folder, name=loaded.manifest.name, loaded=None, problems=(problem,), faults=(fault,))
    if problem is not None:
        return CheckReport(folder=folder, name=loaded.manifest.name, loaded=None, problems=(problem,))
    warnings = _warnings(loaded, limits)
    return CheckReport(folder=folder, name=loaded.manifest.name, loaded=loaded, problems=(), warnings=warnings)


async def propose_pin(
    folder: Path,
    lock_path: Path,
    *,
    describe: Describe,
    limits: LimitsConfig | None = None,
    sandbox: SandboxConfig | None = None,
    environments: Environments | None = None,
    granted: Granted = NOTHING_GRANTED,
) -> PinProposal:
    """Check `folder` and compare it with the pin under its name.

    Raises:
        ConfigError: the lock can't be read.
    """
    report = await check_plugin(
        folder, describe=describe, limits=limits, sandbox=sandbox, environments=environments, granted=granted
    )
    lock = await asyncio.to_thread(read_lock, lock_path)
    return PinProposal(report=report, lock_path=lock_path, pinned=lock.plugins.get(report.name))


def _warnings(loaded: LoadedPlugin, limits: LimitsConfig) -> tuple[Advice, ...]:
    of_kind = server_advice if loaded.manifest.kind is Kind.MCP else (lambda tool: _tool_warnings(tool, limits))
    of_tools = (Advice(tool.name, message) for tool in loaded.tools for message in of_kind(tool))
    return (*_plugin_warnings(loaded), *of_tools)


def _plugin_warnings(loaded: LoadedPlugin) -> tuple[Advice, ...]:
    found: list[Advice] = []
    ours, theirs = loaded.manifest.version, loaded.code_version
    if theirs not in {"", ours}:
        found.append(
            Advice(
                "",
                f'plugin.toml has the version "{ours}", which holds; '
                f'the code says Plugin(version="{printable(theirs)}")',
            )
        )
    if loaded.fork_problem:
        problem = f"no process can be forked for each call: {loaded.fork_problem}"
        found.append(Advice("", f'{problem}; tools that name no isolation get "process" ({FORK_REMEDY})'))
    return tuple(found)


def _tool_warnings(tool: ToolDefinition, limits: LimitsConfig) -> list[str]:
    found: list[str] = []
    kinds = {parse_capability(text).kind for text in tool.requires}
    if len(tool.description.strip()) < _SHORT_DESCRIPTION_CHARS:
        found.append("the description is short: say what the tool does, when to use it and what it returns")
    if not tool.output_schema_json:
        found.append("there is no output schema: results aren't checked")
    if tool.side_effects.allows(Level.WRITE) and not tool.idempotent:
        found.append(f'level "{tool.side_effects}" and not idempotent: a lost call can\'t be run again by itself')
    if tool.side_effects is Level.READ and not kinds & {CapabilityKind.READ, CapabilityKind.HOST}:
        found.append('level "read" without requires = ["read"] or ["host:…"]: it is listed although nothing is granted')
    if tool.side_effects is Level.WRITE and CapabilityKind.WRITE not in kinds:
        found.append('level "write" without requires = ["write"]: it is listed although nothing is granted')
    if tool.side_effects is Level.EXTERNAL and not kinds & {CapabilityKind.HOST, CapabilityKind.PROXY}:
        found.append('level "external" without requires = ["host:NAME:PORT"]: it is listed although nothing is granted')
    schema = json.loads(tool.input_schema_json)
    if schema.get("properties") and schema.get("additionalProperties") is not False:
        found.append('the input schema allows unknown arguments: set "additionalProperties": false')
    found += [
        f"the argument {printable(name)} has no description"
        for name, each in schema.get("properties", {}).items()
        if isinstance(each, dict) and not each.get("description")
    ]
    found += [
        f"the default of the argument {printable(name)} does not fit its own schema: it is not filled in"
        for name, each in schema.get("properties", {}).items()
        if isinstance(each, dict) and "default" in each and not _default_fits(each, schema)
    ]
    merged = {name: value for each in limits.merge(tool.limits) for name, value in asdict(each).items()}
    found += [
        f"limits.{name} = {declared} is above the cap of {cap}, which holds"
        for name, cap in merged.items()
        if (declared := getattr(tool.limits, name)) is not None and declared > cap
    ]
    return found


def _default_fits(rule: dict[str, Any], schema: dict[str, Any]) -> bool:
    """Whether a property's default is valid by the property's schema. True also where that can't be told alone."""
    shared: dict[str, Any] = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    try:
        return compile_schema({**shared, **rule}).is_valid(rule["default"])
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
        return True
