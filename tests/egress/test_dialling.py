"""Dialling for real: what does not answer is given up, and nothing that was opened stays open."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trustme
from fumehood_server.egress import EgressLimits, EgressRequest, Reason

from tests.egress.conftest import certified
from tests.egress.support import answering, external, fetch, names, net, reply

pytestmark = pytest.mark.promise("S803")


@contextmanager
def never_accepting() -> Iterator[int]:
    """A port whose queue is full: Linux drops what comes, and the dialling side waits."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(2):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def _open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_an_address_that_does_not_answer_is_given_up_and_the_next_one_tried() -> None:
    with never_accepting() as silent:
        network = net(resolver=names(a_test=["127.0.0.1", "127.0.0.2"]), real=True)
        access = external(
            f"a.test:{silent}", private=["127.0.0.1", "127.0.0.2"], limits=EgressLimits(connect_timeout_s=2)
        )

        async def second(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply(b"second"))
            writer.close()

        server = await asyncio.start_server(second, "127.0.0.2", silent)
        got = await fetch(network, f"http://a.test:{silent}/", access)
        server.close()
    assert (got.status, got.body) == (200, b"second")
    assert network.events[0].hops[0].address == "127.0.0.2"


async def test_nothing_stays_open_whatever_happens(trusted: trustme.CA) -> None:
    tls = certified(trusted, "other.test")
    limits = EgressLimits(max_response_bytes=10)
    async with answering(reply(b"x" * 100), tls=tls) as wrong_name, answering(reply(b"x" * 100)) as plain:
        with never_accepting() as silent:
            network = net(resolver=names(a_test="127.0.0.1"), real=True)
            access = external(*(f"a.test:{port}" for port in (wrong_name.port, plain.port)), limits=limits)
            soon = external(f"a.test:{silent}", limits=EgressLimits(connect_timeout_s=0.3))

            async def all_ways() -> list[Reason | None]:
                tls_failed = await fetch(network, f"https://a.test:{wrong_name.port}/", access)
                too_large = await fetch(network, f"http://a.test:{plain.port}/", access)
                timed_out = await fetch(network, f"http://a.test:{silent}/", soon)
                late = EgressRequest("GET", f"http://a.test:{silent}/", timeout_s=0.05)
                return [
                    tls_failed.reason,
                    too_large.reason,
                    timed_out.reason,
                    (await fetch(network, late, soon)).reason,
                ]

            first = await all_ways()
            task = asyncio.create_task(fetch(network, f"http://a.test:{silent}/", soon))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for _ in range(50):
                await asyncio.sleep(0)  # what was aborted is closed in the loop's next rounds
            before = _open_descriptors()
            for _ in range(3):
                assert await all_ways() == first
            async with asyncio.timeout(60):
                while _open_descriptors() > before:  # noqa: ASYNC110 - servers close their ends once they hear of it
                    await asyncio.sleep(0.01)
    assert first == [Reason.TLS_FAILED, Reason.RESPONSE_TOO_LARGE, Reason.CONNECT_FAILED, Reason.TIMEOUT]
