"""What the steps of every call share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.calls.forks import Forks
from fumehood_server.calls.records import CallRecords
from fumehood_server.calls.repeats import Repeats
from fumehood_server.calls.result_cache import ResultCache
from fumehood_server.calls.steps.find import Tools
from fumehood_server.calls.steps.inputs import InputParts
from fumehood_server.calls.steps.intercept import InterceptionParts
from fumehood_server.calls.turns import Turns
from fumehood_server.model.approvals import Approvals
from fumehood_server.model.caller import CallerRights
from fumehood_server.model.hooks import Hooks
from fumehood_server.model.journal import Journal
from fumehood_server.model.policy import Policy
from fumehood_server.model.quotas import Quotas
from fumehood_server.model.retries import RetryConfig
from fumehood_server.model.worker import WorkerPools
from fumehood_server.telemetry import CallObserver
from fumehood_server.telemetry.logging import CallLines


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDependencies:
    """Made once, by the executor."""

    tools: Tools
    policy: Policy
    quotas: Quotas
    approvals: Approvals | None
    """None: none can be kept."""
    pools: WorkerPools
    inputs: InputParts
    checks: DocumentChecks
    turns: Turns
    repeats: Repeats
    log: FilteringBoundLogger
    lines: CallLines
    records: CallRecords
    rights: CallerRights
    journal: Journal
    journal_required: bool
    """Whether calls without effects are refused as well while it can't be written."""
    forks: Forks
    retries: Callable[[], RetryConfig]
    """What the operator has of attempts, as it is now."""
    cache: ResultCache
    hooks: Hooks
    interception: InterceptionParts
    observer: CallObserver | None
    """None: nobody asked for telemetry."""
    release_s: float
    """See `invoke_tool`."""
