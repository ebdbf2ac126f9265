"""Reads the plugins of a configuration, side by side and within bounds: their files, their pins, what they declare."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from fumehood_server.config.config import PluginConfig, SidecarConfig
from fumehood_server.model.plugin import WorkerSpec
from fumehood_server.plugins.acceptance import accept_or_refuse
from fumehood_server.plugins.asking_grants import granted_by
from fumehood_server.plugins.environments.environments import Environments
from fumehood_server.plugins.loading import Describe, Described, LoadedPlugin, load_plugin
from fumehood_server.plugins.lock import Lock
from fumehood_server.plugins.refusal import PluginRefusedError
from fumehood_server.plugins.registration import Registration
from fumehood_server.plugins.store import PluginSources

MAX_DESCRIBES = 2
"""Plugins described at a time. Each is an interpreter that imports a plugin: more only compete for the processor."""
_MAX_READS = 4


class PluginReader:
    """For one event loop."""

    def __init__(
        self,
        sources: PluginSources,
        describe: Describe,
        environments: Environments,
        *,
        locked: bool,
        pin_remedy: str = "",
    ) -> None:
        """`sources` is where plugins are run from. `locked` and `pin_remedy` are as those of `load_plugin`."""
        self._sources = sources
        self._describe = describe
        self._environments = environments
        self._locked = locked
        self._pin_remedy = pin_remedy
        self._describing = asyncio.Semaphore(MAX_DESCRIBES)
        self._reading = asyncio.Semaphore(_MAX_READS)

    async def read_all(
        self,
        config: SidecarConfig,
        lock: Lock,
        kept: Mapping[Path, Registration],
        *,
        describe: Describe | None = None,
    ) -> tuple[Registration, ...]:
        """Register every plugin of a configuration. Those of `kept` stay as they were read.

        `describe` asks the others for their tools. None: the reader's own does.
        """
        async with asyncio.TaskGroup() as group:
            tasks = {
                plugin.path: group.create_task(self.read_one(plugin, config, lock, describe=describe))
                for plugin in config.plugins
                if plugin.path not in kept
            }
        reads: dict[Path, LoadedPlugin | PluginRefusedError] = {path: task.result() for path, task in tasks.items()}
        reads |= {path: each.loaded for path, each in kept.items() if each.loaded is not None}

        def register_all() -> tuple[Registration, ...]:
            registrations: list[Registration] = []
            for plugin in config.plugins:
                registrations.append(accept_or_refuse(plugin, reads[plugin.path], registrations, config, lock))
            return tuple(registrations)

        # In a thread: it takes milliseconds for each plugin, and looks for programs.
        return await asyncio.to_thread(register_all)

    async def read_one(
        self, plugin: PluginConfig, config: SidecarConfig, lock: Lock, *, describe: Describe | None = None
    ) -> LoadedPlugin | PluginRefusedError:
        """Read a plugin, or why it is refused."""

        async def describe_bounded(spec: WorkerSpec) -> Described:
            async with self._describing:
                return await (describe or self._describe)(spec)

        async with self._reading:
            try:
                return await load_plugin(
                    plugin.path,
                    sources=self._sources,
                    describe=describe_bounded,
                    limits=config.limits,
                    sandbox=config.sandbox,
                    environments=self._environments,
                    pins=lock.plugins.get,
                    locked=self._locked,
                    granted=granted_by(config, plugin),
                    pin_remedy=self._pin_remedy,
                )
            except PluginRefusedError as exc:
                return exc
