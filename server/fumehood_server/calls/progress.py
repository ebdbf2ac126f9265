"""The state that a call's steps fill in, from which its outcome and its log line are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fumehood_sandbox import Receipt

from fumehood_server.model.call import CachedFrom, CallError
from fumehood_server.model.coercion import Coercion
from fumehood_server.model.hook_events import HookDecided
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.quotas import Charge
from fumehood_server.model.worker import InvocationResult
from fumehood_server.secrets import Redactor


@dataclass(slots=True)
class Spent:
    """What the attempts of a call have used together."""

    cpu_s: float | None = None
    peak_memory_bytes: int = 0
    source: str = ""
    output_bytes: int = 0
    egress_sent_bytes: int = 0
    egress_received_bytes: int = 0
    requests: int = 0

    def add(self, result: InvocationResult) -> None:
        """Count one more."""
        self.output_bytes += result.output_bytes
        used, egress = result.used, result.egress
        if used is not None:
            self.cpu_s = used.cpu_s + (self.cpu_s or 0.0)
            self.peak_memory_bytes = max(self.peak_memory_bytes, used.peak_memory_bytes)
            self.source = used.source
        if egress is not None:
            self.egress_sent_bytes += egress.sent_bytes
            self.egress_received_bytes += egress.received_bytes
            self.requests += egress.requests


@dataclass(slots=True)
class Progress:
    """Filled in by the steps of one call. None: it did not come to that."""

    tool: RegisteredTool | None = None
    arguments_json: str = ""
    """As the plugin gets them."""
    arguments_hash: str = ""
    """Of their canonical form: see `fumehood_server.validation.canonical`."""
    asked_hash: str = ""
    """Of the arguments as they were asked for, where plugin, hook or approver have changed them."""
    coercions: tuple[Coercion, ...] = ()
    """What was mended of them."""
    standing_id: str = ""
    """The standing approval that it has begun with. Empty: none."""
    charges: Sequence[Charge] = ()
    """What it takes of quotas."""
    worker_id: str = ""
    """Of the worker that the call was sent to last. Empty: it was sent to none."""
    receipt: Receipt | None = None
    """What held that worker's process."""
    dispatched_at: float = 0.0
    """When it was first sent."""
    result: InvocationResult | None = None
    """Of the last attempt, until another one follows."""
    spent: Spent = field(default_factory=Spent)
    cached: CachedFrom | None = None
    """Where its result came from. None: the tool ran, or nothing did."""
    in_doubt: CallError | None = None
    """How an earlier attempt ended that may have had effects. None: none may."""
    redactor: Redactor | None = None
    """Takes the secrets of the tool's plugin out of what is recorded. None: it has none, or was not asked for yet."""
    decided: list[tuple[HookDecided, tuple[bytes, ...]]] = field(default_factory=list)
    """What hooks have said and is not recorded yet, with what is put beside it."""
    inferences: int = 0
    """How often its tool has asked for a model's answer."""
    updates: int = 0
    """Updates that the tool has sent."""
    earlier_attempts: int = 0
    """Attempts of a sidecar that died. Each may have had effects."""
    sent: int = 0
    """Attempts of this one."""

    @property
    def attempts(self) -> int:
        """How often the call was sent so far."""
        return self.earlier_attempts + self.sent
