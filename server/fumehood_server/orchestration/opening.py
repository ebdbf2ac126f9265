"""Opens what runs need: the engines of the configuration, and the orchestrator over them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from fumehood_server.calls import Executor
from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.config.config import SidecarConfig
from fumehood_server.config.engines import EngineConfig
from fumehood_server.journal.reads import JournalReads
from fumehood_server.model.caller import CallerRights
from fumehood_server.model.journal import Journal
from fumehood_server.model.quotas import Quotas
from fumehood_server.orchestration.call_inferences import CallInferences
from fumehood_server.orchestration.engines.opening import open_engines
from fumehood_server.orchestration.orchestrator import OrchestrationParts, Orchestrator, Tools
from fumehood_server.secrets import SecretStore
from fumehood_server.telemetry import EngineLabel, RunObserver, get_logger
from fumehood_server.telemetry.running import Telemetry


@contextlib.asynccontextmanager
async def open_orchestrator(
    config: Callable[[], SidecarConfig],
    digest: Callable[[], str],
    *,
    tools: Tools,
    executor: Executor,
    rights: CallerRights,
    quotas: Quotas,
    journal: Journal,
    reads: JournalReads | None,
    telemetry: Telemetry | None,
    models: CallInferences,
) -> AsyncIterator[Orchestrator]:
    """Runs of models within the block. Leaving it ends those that are under way.

    `models` has the engines for calls meanwhile.
    `config` and `digest` give the configuration in force and its SHA-256. Engines are those of the first one.
    """
    first = config()
    async with (
        open_engines(first.engines, SecretStore(first.secrets)) as engines,
        # A process apart from that of calls: text that a model wrote can take it for seconds, and calls would wait.
        DocumentChecks(get_logger()) as checks,
    ):
        observer = None if telemetry is None else _observer(telemetry, first.engines)
        parts = OrchestrationParts(
            engines=engines,
            tools=tools,
            calls=executor,
            checks=checks,
            rights=rights,
            quotas=quotas,
            observer=observer,
            journal=journal,
            reads=reads,
            window_s=first.journal.call_id_window_s,
            payloads=first.journal.payloads,
            configuration=digest,
            batch=lambda: config().batch,
            settings=lambda: config().orchestration,
        )
        configs = {each.name: each for each in first.engines}
        with models.serving(engines, configs, observer):
            async with Orchestrator(parts) as orchestrator:
                yield orchestrator


def _observer(telemetry: Telemetry, engines: Sequence[EngineConfig]) -> RunObserver:
    labels = {each.name: EngineLabel(each.provider.value, each.model) for each in engines}
    return RunObserver(telemetry.metrics, telemetry.observer, labels)
