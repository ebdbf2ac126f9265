"""The state that a call's steps fill in, from which its outcome and its log line are made."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood_sandbox import Receipt

from fumehood_server.model.coercion import Coercion
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.worker import InvocationResult
from fumehood_server.secrets import Redactor


@dataclass(slots=True)
class Progress:
    """Filled in by the steps of one call. None: it did not come to that."""

    tool: RegisteredTool | None = None
    arguments_json: str = ""
    """As the plugin gets them."""
    arguments_hash: str = ""
    """Of their canonical form: see `fumehood_server.validation.canonical`."""
    coercions: tuple[Coercion, ...] = ()
    """What was mended of them."""
    worker_id: str = ""
    """Of the worker that the call was sent to, at `dispatched_at`. Empty: it was sent to none."""
    receipt: Receipt | None = None
    """What held that worker's process."""
    dispatched_at: float = 0.0
    result: InvocationResult | None = None
    redactor: Redactor | None = None
    """Takes the secrets of the tool's plugin out of what is recorded. None: it has none, or was not asked for yet."""
    updates: int = 0
    """Updates that the tool has sent."""
    earlier_attempts: int = 0
    """Attempts of a sidecar that died. Each may have had effects."""
