"""A plugin above its rate waits; another does not, and a cancelled wait gives its slot back."""

from __future__ import annotations

import asyncio

import pytest
from fumehood_server.egress import EgressError, EgressLimits, EgressRequest, Reason, RequestOrigin
from fumehood_server.egress.rate_limiter import RateLimiter

from tests.egress.support import answering, external, fetch, names, net, reply

pytestmark = pytest.mark.promise("S809")


async def test_requests_above_the_burst_wait() -> None:
    async with answering(reply()) as server:
        network = net(resolver=names(a_test="1.1.1.1"), to=server.port)
        slow = external("a.test:80", limits=EgressLimits(max_requests_per_s=2))
        in_time = EgressRequest("GET", "http://a.test/", timeout_s=0.2)
        for _ in range(2):
            assert (await fetch(network, in_time, slow)).status == 200
        assert (await fetch(network, in_time, slow)).reason is Reason.TIMEOUT
        assert len(network.recorder.dials) == 2
        # Refused requests wait as well: each is an event.
        refused = await fetch(network, EgressRequest("GET", "http://b.test/", timeout_s=0.1), slow)
        assert refused.reason is Reason.TIMEOUT
        with pytest.raises(EgressError, match="host_not_granted"):
            async with network.broker.request(EgressRequest("GET", "http://b.test/"), slow, RequestOrigin("another")):
                pass


async def test_the_slot_of_a_cancelled_wait_is_given_back() -> None:
    limiter = RateLimiter()
    for _ in range(5):
        await limiter.wait_for_slot(5)
    for _ in range(100):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(limiter.wait_for_slot(5), 0.0001)
    async with asyncio.timeout(10):  # 20 s had they kept them
        await limiter.wait_for_slot(5)
