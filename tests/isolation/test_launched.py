"""Programs that can't be forked: a sandbox of its own for each call."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fumehood_server.model.tool import Isolation

from tests.faults.bench import misbehaving

from .bench import Bench

pytestmark = pytest.mark.promise("S702")


async def test_each_call_gets_a_sandbox_of_its_own_and_one_waits_for_the_next(bench: Bench) -> None:
    shared = misbehaving("serve", "relaunch")
    spec = replace(shared, key="relaunched", isolation=Isolation.CALL, max_workers=3)
    served: list[str] = []
    for each in (shared, shared, spec, spec):
        lease = await bench.pools.acquire(each)
        served.append(lease.worker.worker_id)
        assert lease.worker.receipt.one_call is (each is spec)
        lease.release()
        result = await bench.call("", spec=each, tool="echo")
        assert result.error is None
    assert served[0] == served[1], "control: without it a process serves many calls"
    assert served[2] != served[3]
    await bench.until(lambda: any(info.spec is spec and not info.calls_served for info in bench.pools.workers()))
