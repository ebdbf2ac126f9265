"""How long to wait between two tries of an inference."""

from __future__ import annotations

import time

from fumehood_server.model.retries import backoff_s
from fumehood_server.orchestration.engines.engine import EngineError


def delay_before_retry(error: EngineError, failures: int, deadline: float) -> float | None:
    """How long to wait after so many failures in a row. None: another try can't help, or not before the deadline.

    `deadline` is on the clock of `time.monotonic`. What the engine asks for (`Retry-After`) can lengthen the wait.
    """
    if not error.transient:
        return None
    wait_s = backoff_s(failures, error.retry_after_s)
    return wait_s if time.monotonic() + wait_s < deadline else None
