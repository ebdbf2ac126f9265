"""A plugin above its rate waits; another does not, and a cancelled wait gives its slot back."""

from __future__ import annotations

import asyncio

import pytest
from fumehood_server.egress import EgressError, EgressLimits, EgressRequest, Reason, RequestOrigin
from fumehood_server.egress.rate_limiter import RateLimiter

from tests.egress.support import answering, external, fetch, names, net, reply

pytestmark = pytest.mark.promise("S809")


async def test_requests_above_the_burst_wait() -> None:
    slow = external("a.test:80", limits=EgressLimits(max_requests_per_s=2))
    async with answering(reply()) as server:
        while True:
            network = net(resolver=names(a_test="1.1.1.1"), to=server.port)
            begun_s = asyncio.get_running_loop().time()
            within = [await fetch(network, "http://a.test/", slow) for _ in range(2)]
            above = await fetch(network, EgressRequest("GET", "http://a.test/", timeout_s=0.1), slow)
            # Refused requests wait as well: each is an event.
            refused = await fetch(network, EgressRequest("GET", "http://b.test/", timeout_s=0.1), slow)
            if asyncio.get_running_loop().time() < begun_s + 0.5:
                break  # else the machine was halted for so long that the rate has allowed a third
        assert [each.status for each in within] == [200, 200]
        assert (above.reason, refused.reason) == (Reason.TIMEOUT, Reason.TIMEOUT)
        assert len(network.recorder.dials) == 2
        with pytest.raises(EgressError, match="host_not_granted"):
            async with network.broker.request(EgressRequest("GET", "http://b.test/"), slow, RequestOrigin("another")):
                pass


async def test_the_slot_of_a_cancelled_wait_is_given_back() -> None:
    limiter = RateLimiter()
    for _ in range(5):
        await limiter.wait_for_slot(5)
    for _ in range(100):  # each would wait for more than a minute
        waiting = asyncio.create_task(limiter.wait_for_slot(0.01))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with asyncio.timeout(60):  # hours had they kept them
        await limiter.wait_for_slot(5)
