"""How long a run waits before it asks an engine again, by what the engine did."""

from __future__ import annotations

import time

import pytest
from fumehood_server.model.retries import backoff_s
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.engines.engine import EngineError
from fumehood_server.orchestration.engines.retrying import delay_before_retry

from tests.orchestration.engines.asking import failed
from tests.orchestration.scripted import ScriptedModel


def waits(error: EngineError, *, failures: int = 1, within_s: float = 60.0) -> float | None:
    return delay_before_retry(error, failures, time.monotonic() + within_s)


async def test_what_may_pass_is_waited_for_and_what_does_not_is_not(scripted_model: ScriptedModel) -> None:
    scripted_model.fails(503)
    scripted_model.fails(401)
    busy, denied = await failed(scripted_model.base_url), await failed(scripted_model.base_url)
    assert (waits(busy) is not None, waits(denied)) == (True, None)


@pytest.mark.parametrize(
    ("headers", "within_s", "wait_s"),
    [
        ({"retry-after": "4"}, 60, 4.0),
        ({"retry-after-ms": "4500"}, 60, 4.5),
        ({"retry-after": "30"}, 15, None),
        ({"retry-after": "86400"}, 100_000, None),
    ],
)
async def test_retry_after_is_waited_for_where_it_fits_the_deadline(
    scripted_model: ScriptedModel, headers: dict[str, str], within_s: float, wait_s: float | None
) -> None:
    scripted_model.answers_raw(status=429, headers=headers)
    assert waits(await failed(scripted_model.raw_url), within_s=within_s) == wait_s


def test_retry_after_never_shortens_the_wait() -> None:
    hasty = EngineError(Code.INFERENCE_MODEL_UNAVAILABLE, "busy", transient=True, retry_after_s=0.0)
    assert (waits(hasty, failures=5) or 0) >= 1.2


def test_waits_double_up_to_ten_seconds_and_are_spread() -> None:
    for failures, middle_s in ((1, 0.1), (2, 0.2), (5, 1.6)):
        found = {backoff_s(failures) for _ in range(100)}
        assert middle_s * 0.75 <= min(found) < max(found) <= middle_s * 1.25
    assert backoff_s(1000) == 10.0
    assert (backoff_s(1, 4), backoff_s(1, "4") < 1, backoff_s(1, True) < 1) == (4, True, True)
