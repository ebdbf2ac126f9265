"""Plugin catalog: every plugin and tool of the configuration, loaded at start and reloaded on request."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from fumehood_server.config.config import SidecarConfig
from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.plugin import RegisteredPlugin, RegisteredTool, WorkerSpec
from fumehood_server.model.tool import Availability, Reason
from fumehood_server.plugins.acceptance import accept_or_refuse, serves_its_pin
from fumehood_server.plugins.availability import AvailabilityScan, damaged_copy
from fumehood_server.plugins.config_change import ConfigReloaded, check_refused, compare_registrations
from fumehood_server.plugins.disabled import FILE_NAME, Disabled, DisabledPlugins
from fumehood_server.plugins.environments.environments import Environments, environments_folder
from fumehood_server.plugins.hashing_threads import HashingThreads
from fumehood_server.plugins.index import RegistrationIndex
from fumehood_server.plugins.loading import Describe, LoadedPlugin
from fumehood_server.plugins.lock import Lock, Pinned, pin_plugins, read_lock
from fumehood_server.plugins.manifest import try_manifest
from fumehood_server.plugins.missing_programs import MissingPrograms
from fumehood_server.plugins.pin_records import PinRecords
from fumehood_server.plugins.reader import PluginReader
from fumehood_server.plugins.registration import Registration
from fumehood_server.plugins.state_log import Log, log_state
from fumehood_server.plugins.store import CopyDamagedError, PluginSources, PluginStore

STORE_NAME = "plugins"
"""Folder of the plugins' copies in `state_dir`."""

Running = Callable[[], Collection[str]]
"""Digests of the plugins of which processes run."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The outcome of a reload that was accepted."""

    plugin: RegisteredPlugin
    """The plugin as it is now. It may have another name."""
    unused: frozenset[str]
    """Keys of workers that nothing uses any more: retire them."""


class Catalog:
    """All plugins and tools. Looking up costs no system call; what it returns is frozen.

    Make it with `load`. What isn't a coroutine is for the event loop's thread.
    """

    def __init__(
        self,
        config: SidecarConfig,
        *,
        sources: PluginSources,
        describe: Describe,
        running: Running,
        locked: bool,
        log: Log,
        sandbox: Reason | None,
        pins: PinRecords | None = None,
        pin_remedy: str = "",
    ) -> None:
        """An empty catalog, which `load` fills."""
        self._config = config
        self._sources = sources
        self._running = running
        self._locked = locked
        self._log = log
        self._sandbox = sandbox
        self._pins = pins
        self._environments = Environments(environments_folder(config))
        self._reader = PluginReader(sources, describe, self._environments, locked=locked, pin_remedy=pin_remedy)
        self._missing = MissingPrograms()
        self._disabled = DisabledPlugins(config.server.state_dir / FILE_NAME)
        self._lock = Lock()
        self._former: dict[str, LoadedPlugin] = {}
        """What was served before the last reload, by digest: calls that found their tool then may still need a worker.
        """
        self._writing = asyncio.Lock()
        self._hashing = HashingThreads()
        self._index = RegistrationIndex()

    @classmethod
    async def load(
        cls,
        config: SidecarConfig,
        *,
        describe: Describe,
        sources: PluginSources | None = None,
        running: Running = frozenset,
        locked: bool = False,
        log: Log,
        sandbox: Reason | None = None,
        pins: PinRecords | None = None,
        pin_remedy: str = "",
    ) -> Catalog:
        """Read every plugin of the configuration. One that can't be served is kept as refused, with the reasons.

        A plugin that is seen for the first time is pinned, unless `locked`. `sources` is where plugins are run from: by
        default copies in `state_dir`. `running` tells the digests of which processes run. `sandbox` says why this
        machine can't sandbox at all, which makes every tool unavailable; None when it can. `pins` records pins.
        `pin_remedy` is how to accept a plugin where that isn't `fumehood plugin add`.

        Raises:
            ConfigError: the lock can't be read or written.
        """
        catalog = cls(
            config,
            sources=sources or PluginStore(config.server.state_dir / STORE_NAME),
            describe=describe,
            running=running,
            locked=locked,
            log=log,
            sandbox=sandbox,
            pins=pins,
            pin_remedy=pin_remedy,
        )
        await catalog._load()
        return catalog

    @property
    def tools(self) -> tuple[RegisteredTool, ...]:
        """Every tool that is listed, available or not, sorted by name."""
        return self._index.tools

    @property
    def plugins(self) -> tuple[RegisteredPlugin, ...]:
        """Every plugin, refused ones included, in the order of the configuration."""
        return tuple(registration.plugin for registration in self._index.registrations)

    async def look_for_programs(self) -> None:
        """Take up plugins whose program was installed meanwhile. Call it before `find` and `scan` for a caller.

        It looks at most once a second, in a thread; where no plugin waits for its program, nothing is waited for.
        """
        if not self._index.waiting:
            return
        for old, new in await self._missing.look(self._config, lambda: self._index.waiting):
            if old in self._index.waiting:  # else it was reloaded meanwhile
                self._index = self._index.replaced(old, self._disabled.in_force(new))
                log_state(self._log, new)

    def find(self, name: str) -> RegisteredTool | None:
        """The tool of this name. None when no accepted plugin declares it."""
        found = self._index.tool(name)
        return found[0] if found else None

    def plugin(self, name: str) -> RegisteredPlugin | None:
        """The plugin of this name (of two, the accepted one), or of this folder, as it is shown."""
        found = self._index.plugin(name)
        return found.plugin if found else None

    def scan(self) -> AvailabilityScan:
        """The availability checks of one listing."""
        return AvailabilityScan(self._sandbox, self._config.secrets, self._environments)

    def availability(self, tool: RegisteredTool, scan: AvailabilityScan) -> Availability:
        """Whether `tool` could run now."""
        found = self._index.tool(tool.name)
        if found is None or found[0] is not tool:
            return Availability((Reason("plugin_changed", f"{tool.plugin} was reloaded meanwhile", "list again"),))
        return scan.check_tool(tool, found[1])

    async def verify(self, spec: WorkerSpec) -> Reason | None:
        """Why a new worker of `spec` must not be started: its files aren't those that were read. None when they are.

        Call it right before each start of a worker. What it finds is what listings tell from then on, until the plugin
        is reloaded or a later start finds its files in order.
        """
        disabled = self._disabled.find(spec.plugin)
        if disabled is not None:
            return disabled.as_reason(spec.plugin)
        registration = self._index.plugin(spec.plugin)
        loaded = registration.loaded if registration is not None else None
        current = loaded is not None and loaded.digest == spec.plugin_digest
        if not current:
            loaded = self._former.get(spec.plugin_digest)
        if loaded is None:
            return Reason("plugin_changed", f"{spec.plugin} was reloaded or is gone")
        problem: Reason | None = None
        try:
            await self._hashing.run(spec.plugin, self._sources.verify, spec.plugin_digest)
        except CopyDamagedError as exc:
            problem = damaged_copy(loaded, str(exc))
        now = self._index.plugin(spec.plugin)
        if current and now is not None and now.loaded is loaded and now.damage != problem:
            self._index = self._index.replaced(now, replace(now, damage=problem))
        if problem is None and loaded.environment is not None:
            return await self._hashing.run(spec.plugin, self._environments.verify, loaded.environment)
        return problem

    async def reload(self, name: str) -> Reloaded:
        """Read a plugin again.

        Where no plugin has the name, the manifests of refused plugins are searched for it: one that was renamed, since
        another has its old name, is found by its new one.

        Raises:
            RefusedError: there is no such plugin (PLUGIN_NOT_FOUND), or what is there now can't be taken
                (RELOAD_REFUSED); an accepted plugin then stays as it was.
            ConfigError: the lock can't be read or written.
        """
        async with self._writing:
            old = self._index.plugin(name) or await self._renamed_to(name)
            if old is None:
                raise _not_found(name)
            self._lock = await asyncio.to_thread(read_lock, self._config.lock_path)
            read = await self._reader.read_one(old.config, self._config, self._lock)
            others = [each for each in self._index.registrations if each.config is not old.config]
            # In a thread: definitions may be many and long, and are compared with those that were pinned.
            new = await asyncio.to_thread(accept_or_refuse, old.config, read, others, self._config, self._lock)
            if new.loaded is None:
                if old.loaded is None:
                    self._index = self._index.replaced(old, self._disabled.in_force(new))
                (await self._prepare_pins((new,), self._lock, ()))()
                text = "; ".join(reason.message for reason in new.plugin.reasons)
                self._log.warning("plugin_reload_refused", plugin=name, problem=text)
                await self._collect_copies()
                remedy = "; ".join(dict.fromkeys(reason.remedy for reason in new.plugin.reasons if reason.remedy))
                raise RefusedError(Refusal(RefusalReason.RELOAD_REFUSED, text, {"remedy": remedy} if remedy else {}))
            pinned = new.plugin.name not in self._lock.plugins
            if pinned:
                pins = {new.plugin.name: new.loaded.pinned()}
                self._lock = await asyncio.to_thread(pin_plugins, self._config.lock_path, pins)
            record_pins = await self._prepare_pins((new,), self._lock, {new.plugin.name} if pinned else ())
            self._former = _served(self._index.registrations)
            # `find` may have registered the old one anew meanwhile: what was read just now replaces it.
            self._take_up(new if each.config is old.config else each for each in self._index.registrations)
            record_pins()
            log_state(self._log, new, pinned=pinned)
            await self._collect_copies()
            unused = _keys(old) - frozenset[str]().union(*map(_keys, self._index.registrations))
            return Reloaded(new.plugin, unused)

    async def reload_config(self, config: SidecarConfig, describe: Describe) -> ConfigReloaded:
        """Take up another configuration, all of it or nothing. Its `lock_path` must be the same.

        A plugin that serves what is pinned is not read again. Others are read, described by `describe` and pinned as at
        a start, while everything goes on as it was. What changes changes at once, right before this returns: the loop
        runs nothing else in between. Cancelled before, it has changed nothing but the pins of plugins that are new.

        Raises:
            RefusedError: a plugin can't be taken that is new or changed, or that served so far (RELOAD_REFUSED).
            ConfigError: the lock can't be read or written.
        """
        async with self._writing:
            lock = await asyncio.to_thread(read_lock, config.lock_path)
            kept = {each.config.path: each for each in self._index.registrations if serves_its_pin(each, lock)}
            registrations = await self._reader.read_all(config, lock, kept, describe=describe)
            check_refused(self._index.registrations, registrations, config)
            lock, first_seen = await self._pin_first_seen(config, lock, registrations)
            record_pins = await self._prepare_pins(registrations, lock, first_seen)
            before, old = self._index.registrations, self._config
            self._config, self._lock, self._former = config, lock, _served(before)
            self._take_up(registrations)
            record_pins()
            for each in registrations:
                if each.config.path not in kept:
                    log_state(self._log, each, pinned=each.plugin.name in first_seen)
            return compare_registrations(
                before, registrations, relays_changed=old.egress.limits != config.egress.limits
            )

    def disable(self, name: str, disabled: Disabled) -> Reloaded:
        """Take a plugin out of service until `enable`: no worker of it starts from now on.

        Raises:
            RefusedError: there is no such plugin (PLUGIN_NOT_FOUND).
        """
        old = self._find_plugin(name)
        self._disabled.disable(old.plugin.name, disabled)
        new = self._disabled.in_force(old)
        self._index = self._index.replaced(old, new)
        self._log.warning("plugin_disabled", plugin=new.plugin.name, by=disabled.by, reason=disabled.reason)
        return Reloaded(new.plugin, _keys(new))

    def enable(self, name: str) -> RegisteredPlugin:
        """Put a plugin back into service. One that wasn't disabled stays as it is.

        Raises:
            RefusedError: there is no such plugin (PLUGIN_NOT_FOUND).
        """
        old = self._find_plugin(name)
        if not self._disabled.enable(old.plugin.name):
            return old.plugin
        new = self._disabled.in_force(old)
        self._index = self._index.replaced(old, new)
        self._log.info("plugin_enabled", plugin=new.plugin.name)
        return new.plugin

    async def save_disabled(self) -> None:
        """Have a restart find the same plugins disabled.

        Raises:
            RefusedError: it would not (STATE_UNWRITABLE). Until then what was said holds.
        """
        try:
            await self._disabled.save()
        except OSError as exc:
            text = (
                f"it is so until a restart, which would not know of it: {exc.filename or 'state_dir'}: {exc.strerror}"
            )
            raise RefusedError(Refusal(RefusalReason.STATE_UNWRITABLE, text)) from exc

    def _find_plugin(self, name: str) -> Registration:
        found = self._index.plugin(name)
        if found is None:
            raise _not_found(name)
        return found

    async def _load(self) -> None:
        await asyncio.to_thread(self._disabled.read)
        lock = await asyncio.to_thread(read_lock, self._config.lock_path)
        registrations = await self._reader.read_all(self._config, lock, {})
        self._lock, first_seen = await self._pin_first_seen(self._config, lock, registrations)
        record_pins = await self._prepare_pins(registrations, self._lock, first_seen)
        self._take_up(registrations)
        record_pins()
        for registration in registrations:
            log_state(self._log, registration, pinned=registration.plugin.name in first_seen)
        await self._collect_copies()

    def _take_up(self, registrations: Iterable[Registration]) -> None:
        """Serve these from now on."""
        self._index = RegistrationIndex(tuple(map(self._disabled.in_force, registrations)))

    async def _pin_first_seen(
        self, config: SidecarConfig, lock: Lock, registrations: Sequence[Registration]
    ) -> tuple[Lock, Collection[str]]:
        """Pin the plugins that have no pin yet. Returns the lock as it then stands, and their names."""
        first_seen: dict[str, Pinned] = {
            each.loaded.manifest.name: each.loaded.pinned()
            for each in registrations
            if each.loaded is not None and each.loaded.manifest.name not in lock.plugins and not self._locked
        }
        if first_seen:
            lock = await asyncio.to_thread(pin_plugins, config.lock_path, first_seen)
        return lock, first_seen

    async def _prepare_pins(
        self, registrations: Sequence[Registration], lock: Lock, first_seen: Collection[str]
    ) -> Callable[[], None]:
        """What records the pins of these registrations once they are in force."""
        if self._pins is None:
            return lambda: None
        found = await asyncio.to_thread(self._pins.prepare, registrations, lock, first_seen)
        return functools.partial(self._pins.record, found)

    async def collect_copies(self) -> None:
        """Remove the copies that nobody needs; call it after `reload_config`, once its workers are retired."""
        async with self._writing:
            await self._collect_copies()

    async def _collect_copies(self) -> None:
        """Remove the copies that nobody pins, serves or runs. Those of workers that end now go the next time."""
        keep = {
            *self._former,
            *(pinned.digest for pinned in self._lock.plugins.values()),
            *(each.loaded.digest for each in self._index.registrations if each.loaded is not None),
            *self._running(),
        }
        try:
            removed = await asyncio.to_thread(self._sources.collect, keep)
        except OSError as exc:
            self._log.warning("plugin_copies_kept", problem=str(exc))
            return
        if removed:
            self._log.info("plugin_copies_removed", plugin_digests=removed)

    async def _renamed_to(self, name: str) -> Registration | None:
        """The refused plugin whose manifest has this name now."""
        for each in self._index.registrations:
            if each.loaded is None and (await asyncio.to_thread(try_manifest, each.config.path)).name == name:
                return each
        return None


def _not_found(name: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.PLUGIN_NOT_FOUND, f'there is no plugin "{name[:128]}"'))


def _served(registrations: Sequence[Registration]) -> dict[str, LoadedPlugin]:
    """What is served, by its digest."""
    return {each.loaded.digest: each.loaded for each in registrations if each.loaded is not None}


def _keys(registration: Registration) -> frozenset[str]:
    return frozenset(
        spec.key
        for tool in registration.plugin.callable_tools
        for spec in (tool.spec, tool.prepares)
        if spec is not None
    )


__all__ = ["STORE_NAME", "Catalog", "Log", "Reloaded", "Running"]
