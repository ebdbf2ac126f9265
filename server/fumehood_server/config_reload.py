"""Configuration reload at run time (SIGHUP, `PluginService.ReloadConfig`): all of it or nothing, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

import orjson

from fumehood_server.callers import CallerRules, CertificateError
from fumehood_server.config.config import SidecarConfig
from fumehood_server.config.effective import ConfigComparison, changed_keys, differences, effective_document
from fumehood_server.config.restart import needs_restart
from fumehood_server.errors import ConfigError, Refusal, RefusalReason, RefusedError
from fumehood_server.hooks import HookRegistry
from fumehood_server.model.events import NOBODY, Document
from fumehood_server.model.journal import Journal
from fumehood_server.model.operation_events import ConfigurationReloaded
from fumehood_server.model.plugin import WorkerSpec
from fumehood_server.model.worker import WorkerPools
from fumehood_server.plugin_requests import PluginRequests
from fumehood_server.plugins.catalog import Catalog, Log
from fumehood_server.plugins.config_change import ConfigReloaded
from fumehood_server.plugins.loading import Described
from fumehood_server.policy import QuotaSet, RuleSet
from fumehood_server.policy.unknown_tools import unknown_tools
from fumehood_server.rpc import ServedCertificates
from fumehood_server.secrets import SecretStore
from fumehood_server.telemetry import get_logger

ReadConfig = Callable[[], SidecarConfig]
"""Reads the configuration as at start, what the command line adds included. Called in a thread.

Raises:
    ConfigError: it can't be honoured as it stands.
"""
DescribeBy = Callable[[WorkerSpec, PluginRequests], Awaitable[Described]]
"""Asks a plugin for its tools, and answers its own requests by the `PluginRequests` given."""


class ConfigReloader:
    """Reads the configuration again and has it taken up.

    Plugins, rules, quotas, callers, hooks, certificates, secrets and pools are told here. Whoever asks `config` for
    each call or run has the new one by that: retries, approvals, batches and the orchestrator.
    """

    def __init__(
        self,
        config: SidecarConfig,
        read: ReadConfig,
        *,
        catalog: Catalog,
        pools: WorkerPools,
        describe: DescribeBy,
        plugin_requests: PluginRequests,
        log: Log,
        journal: Journal,
        document: Document,
        policy: RuleSet,
        quotas: QuotaSet,
        callers: CallerRules,
        certificates: ServedCertificates | None,
        hooks: HookRegistry,
    ) -> None:
        """`config` is the one in force, and `document` the same for the journal. `certificates` None: no TLS."""
        self._callers = callers
        self._certificates = certificates
        self._hooks = hooks
        self._config = config
        self._journal = journal
        self._document = document
        self._read = read
        self._catalog = catalog
        self._pools = pools
        self._describe = describe
        self._plugin_requests = plugin_requests
        self._log = log
        self._policy = policy
        self._quotas = quotas
        self._one_at_a_time = asyncio.Lock()

    @property
    def config(self) -> SidecarConfig:
        """The configuration in force."""
        return self._config

    @property
    def digest(self) -> str:
        """SHA-256 of the configuration in force."""
        return self._document.digest.hex()

    async def reload(self) -> ConfigReloaded:
        """Take up the file as it is now. Logs what came of it.

        Raises:
            RefusedError: nothing has changed (RELOAD_REFUSED); the message says why, and where in the file.
        """
        async with self._one_at_a_time:
            try:
                reloaded = await self._take_up()
            except RefusedError as exc:
                self._log.warning("config_reload_refused", problem=str(exc), **exc.refusal.metadata)
                raise
            names = [each.name for each in self._catalog.tools]
            notes = await asyncio.to_thread(unknown_tools, self._config.rules, names)
            self._log.info(
                "config_reloaded",
                added=reloaded.added,
                removed=reloaded.removed,
                changed=reloaded.changed,
                plugins=len(self._config.plugins),
                keys=reloaded.keys,
            )
            log_notes(self._log, notes)
            await self._catalog.collect_copies()
            return replace(reloaded, notes=tuple(notes))

    async def compare(self) -> ConfigComparison:
        """What a reload would change. Changes nothing.

        Raises:
            RefusedError: the file can't be honoured (RELOAD_REFUSED).
        """
        running = self._config
        try:
            config = await asyncio.to_thread(self._read)
            found = await asyncio.to_thread(differences, running, config)
        except ConfigError as exc:
            raise _config_refusal(exc) from exc
        return ConfigComparison(tuple(found), needs_restart(running, config))

    async def _take_up(self) -> ConfigReloaded:
        running = self._config
        try:
            config = await asyncio.to_thread(self._read)
            _check_restart(running, config)
            rules = await asyncio.to_thread(RuleSet, config.rules)
            document, keys = await asyncio.to_thread(_compared, self._document, config)
            files = None if self._certificates is None else await self._certificates.read_again()
            secrets = SecretStore({**running.secrets, **config.secrets})
            asking = self._plugin_requests.answering_by(secrets, config.egress.limits)
            reloaded = await self._catalog.reload_config(config, lambda spec: self._describe(spec, asking))
        except ConfigError as exc:
            raise _config_refusal(exc) from exc
        except CertificateError as exc:
            metadata = {"file": str(exc.path), "key": f"server.tls.{exc.key}"}
            raise RefusedError(Refusal(RefusalReason.RELOAD_REFUSED, f"{exc} ({exc.remedy})", metadata)) from exc
        # No await since the catalog has changed: a new call must not meet the old secrets. Calls of before the change
        # may still ask for a secret that is gone; those of after it are granted none that isn't there.
        self._config = config
        self._policy.take_up(rules)
        self._quotas.take_up(config.quotas)
        self._callers.take_up(config.callers)
        self._hooks.take_up(config.hooks)
        if self._certificates is not None and files is not None:
            self._certificates.take_up(files)
        self._record(document, keys, reloaded)
        self._plugin_requests.take_up(secrets, config.egress.limits)
        await self._pools.retire(reloaded.unused)
        return replace(reloaded, keys=tuple(each for each in keys if not each.startswith("plugin.")))

    def _record(self, document: Document, keys: tuple[str, ...], reloaded: ConfigReloaded) -> None:
        before, self._document = self._document, document
        event = ConfigurationReloaded(
            configuration=document.digest.hex(),
            previous=before.digest.hex(),
            keys=keys,
            added=reloaded.added,
            removed=reloaded.removed,
            changed=reloaded.changed,
        )
        self._journal.record(event, NOBODY, (), (document,))


async def reload_on_hangup(hangup: asyncio.Event, reloader: ConfigReloader, reloaded: Callable[[], None]) -> None:
    """Reload for each SIGHUP, as long as the sidecar serves. Several that come during one make one more."""
    while True:
        await hangup.wait()
        hangup.clear()
        try:
            await reloader.reload()
        except RefusedError:
            continue  # it is in the log
        except Exception as problem:  # noqa: BLE001 - a signal must not end the sidecar
            get_logger().error("config_reload_failed", exc_info=problem)
            continue
        reloaded()


def log_notes(log: Log, notes: Iterable[str]) -> None:
    """Tell of what may not be meant so."""
    for each in notes:
        log.warning("rule_names_no_tool", message=each)


def _compared(before: Document, config: SidecarConfig) -> tuple[Document, tuple[str, ...]]:
    document = effective_document(config)
    return document, changed_keys(orjson.loads(before.data), orjson.loads(document.data))


def _check_restart(running: SidecarConfig, wanted: SidecarConfig) -> None:
    keys = needs_restart(running, wanted)
    if keys:
        names = ", ".join(keys)
        message = f"this is read at start alone, so that changing it takes a restart: {names}"
        raise RefusedError(Refusal(RefusalReason.RELOAD_REFUSED, message, {"restart": names}))


def _config_refusal(error: ConfigError) -> RefusedError:
    metadata = {"file": str(error.path), "line": str(error.line) if error.line else "", "key": error.key}
    given = {name: text for name, text in metadata.items() if text}
    return RefusedError(Refusal(RefusalReason.RELOAD_REFUSED, str(error), given))


__all__ = ["ConfigReloader", "ReadConfig", "log_notes"]
