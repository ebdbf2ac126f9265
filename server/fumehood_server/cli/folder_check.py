"""Checks a plugin's folder without a sidecar, for `plugin check`, `plugin add` and `plugin dev`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fumehood_sandbox import Level, SandboxUnavailableError, check

from fumehood_server.cli.authors_folder import AuthorsFolder
from fumehood_server.cli.failure import CommandError, ExitStatus
from fumehood_server.config import SidecarConfig, find_config, load_config
from fumehood_server.config.config import PluginConfig, SandboxConfig
from fumehood_server.config.listeners import own_listeners
from fumehood_server.config.load import default_config
from fumehood_server.egress import EgressEvent
from fumehood_server.errors import ConfigError, WorkerUnavailableError
from fumehood_server.model.plugin import Grants, WorkerSpec
from fumehood_server.plugin_requests import PluginRequests
from fumehood_server.plugins import CheckReport, PinProposal, check_plugin, propose_pin
from fumehood_server.plugins.asking_grants import NOTHING_GRANTED, Granted, granted_by
from fumehood_server.plugins.environments.environments import Environments, environments_folder
from fumehood_server.secrets import SecretStore
from fumehood_server.workers import LogLine, LogSink, ReadyInfo, WorkerSettings, describe

_T = TypeVar("_T")
_OnLine = Callable[[LogLine], None]


def check_folder(folder: Path, config: SidecarConfig, on_line: _OnLine, *, with_grants: bool = False) -> CheckReport:
    """Check the folder as a sidecar of `config` would. `on_line` gets what the plugin logs while it is described.

    `with_grants`: whether an MCP server on stdio is asked for its tools with what it is granted, if its entry has
    `list_with_grants`.

    Raises:
        CommandError: this machine can't sandbox.
    """
    environments = Environments(environments_folder(config))
    granted = _granted_here(folder.resolve(), config)
    if not with_grants:
        granted = replace(granted, list_with_grants=False)
    return _run_sandboxed(
        folder.resolve(),
        on_line,
        config,
        lambda ask: check_plugin(
            folder.resolve(),
            describe=ask,
            limits=config.limits,
            sandbox=config.sandbox,
            environments=environments,
            granted=granted,
        ),
    )


def propose_folder_pin(
    folder: Path,
    config: SidecarConfig,
    on_line: _OnLine,
    *,
    new: Grants | None = None,
    entry: PluginConfig | None = None,
) -> PinProposal:
    """Check the folder, and compare it with what the lock has under the plugin's name.

    `new` is what it is to be granted, where the configuration doesn't name it yet; `entry` is what names another
    version of it.

    Raises:
        CommandError: this machine can't sandbox.
        ConfigError: the lock can't be read.
    """
    return _run_sandboxed(
        folder.resolve(),
        on_line,
        config,
        lambda ask: propose_pin(
            folder.resolve(),
            config.lock_path,
            describe=ask,
            limits=config.limits,
            sandbox=config.sandbox,
            environments=Environments(environments_folder(config)),
            granted=granted_by(config, entry) if entry else _granted_here(folder.resolve(), config, new),
        ),
    )


def _granted_here(folder: Path, config: SidecarConfig, new: Grants | None = None) -> Granted:
    """What the configuration grants the plugin in the folder, where it names it; else what is new."""
    for each in config.plugins:
        if each.path == folder:
            return granted_by(config, each)
    return NOTHING_GRANTED if new is None else Granted(grants=replace(new, private=config.egress.private))


def sandbox_of(config_path: Path | None) -> SandboxConfig:
    """`[sandbox]` of a configuration; the default where there is none, or an invalid one."""
    try:
        return load_config(find_config(config_path)).sandbox
    except ConfigError:
        return SandboxConfig()


def config_here() -> SidecarConfig:
    """The configuration in ./fumehood.toml, or the default where there is no such file.

    The sandbox is the operator's choice and not the plugin's, so a plugin is checked as it would be served here.

    Raises:
        ConfigError: it is not valid. Going on without it would be to check for another sandbox and other grants.
    """
    found = find_config(None)
    try:
        return load_config(found)
    except ConfigError:
        if found is not None:
            raise
        return default_config(Path("/"))  # a path that is too long for the socket, which nobody opens here


def _run_sandboxed(folder: Path, on_line: _OnLine, config: SidecarConfig, work: Callable[[Any], Awaitable[_T]]) -> _T:
    try:
        check(config.sandbox.minimum)
    except SandboxUnavailableError as error:
        raise CommandError(
            str(error),
            "`fumehood doctor` says what this machine lacks and how to get it.",
            code="CONFIG_SANDBOX_UNAVAILABLE",
            status=ExitStatus.FAILED,
        ) from error

    async def run() -> _T:
        settings = WorkerSettings(start_timeout_s=config.server.start_timeout_s)
        names = AuthorsFolder(folder)
        logs = LogSink(lambda _plugin, line: on_line(replace(line, message=names.named(line.message))))
        # For MCP servers that are asked with what they are granted.
        requests = PluginRequests(
            SecretStore(config.secrets),
            logs,
            limits=config.egress.limits,
            sink=_ignore,
            own=own_listeners(config),
        )
        ask = partial(describe, logs=logs, settings=settings, plugin_requests=requests)

        async def ask_copy(spec: WorkerSpec) -> ReadyInfo:
            names.note_copy(spec)
            try:
                return await ask(spec)
            except WorkerUnavailableError as error:
                named = replace(error.error, message=names.named(error.error.message))
                raise WorkerUnavailableError(named) from error

        return await work(ask_copy)

    return asyncio.run(run())


def _ignore(event: EgressEvent) -> None:
    """A command's own requests are shown by what they bring."""


def highest_level(report: CheckReport) -> Level:
    """The highest level that a tool asks for."""
    return report.levels[-1] if report.levels else Level.NONE
