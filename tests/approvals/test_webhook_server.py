"""The webhook's listener bounds what strangers send, and what it counts and logs of a receiver that is down."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import structlog
from fumehood_server.config.listen import Listen
from fumehood_server.telemetry.metrics import SidecarMetrics
from fumehood_server.webhook.delivery_log import DeliveryLog
from fumehood_server.webhook.http_server import (
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    HttpAnswer,
    HttpRefusedError,
    HttpRequest,
    serving_http,
)

BOUND_S = 30.0
HEAD = b"POST /x HTTP/1.1\r\nhost: h\r\n"
WHOLE = HEAD + b"content-length: 2\r\n\r\n{}"


async def answer(request: HttpRequest) -> HttpAnswer:
    if request.path == "/fault":
        raise ZeroDivisionError
    return HttpAnswer(200, str(len(request.body)).encode())


def refuse(problem: HttpRefusedError) -> HttpAnswer:
    return HttpAnswer(problem.status, b"")


@pytest_asyncio.fixture
async def port() -> AsyncIterator[int]:
    async with served(BOUND_S) as found:
        yield found


@contextlib.asynccontextmanager
async def served(request_s: float) -> AsyncIterator[int]:
    async with serving_http(Listen(host="127.0.0.1"), answer, refuse, request_s=request_s) as address:
        yield int(address.rpartition(":")[2])


async def answered(port: int, data: bytes) -> bytes:
    """All that comes back, until the server closes."""
    async with asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (WHOLE, b"200"),
        (HEAD + b"content-length: %d\r\n\r\n" % MAX_BODY_BYTES + b"x" * MAX_BODY_BYTES, b"200"),
        (HEAD + b"content-length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1), b"413"),
        (HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}", b"400"),
        (HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b"411"),
        (HEAD + b"x: " + b"x" * (2 * MAX_HEAD_BYTES), b"431"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"POST /fault HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n", b""),
    ],
)
async def test_what_is_too_long_or_no_request_is_ended(port: int, data: bytes, status: bytes) -> None:
    assert (await answered(port, data))[9:12] == status
    assert (await answered(port, WHOLE))[9:12] == b"200"


@pytest.mark.parametrize(
    "data", [HEAD + b"content-length: 2\r\n", HEAD + b"content-length: 2\r\n\r\n{", b""], ids=["head", "body", "all"]
)
async def test_what_is_too_slow_is_ended(data: bytes) -> None:
    async with served(0.2) as port, asyncio.timeout(BOUND_S):
        assert await answered(port, data) == b""
        while (await answered(port, WHOLE))[9:12] != b"200":  # which a busy machine may be too slow for as well
            pass


async def test_a_body_that_waits_to_be_asked_for_is_asked_for(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HEAD + b"content-length: 2\r\nexpect: 100-continue\r\n\r\n")
    assert (await reader.readuntil(b"\r\n\r\n"))[9:12] == b"100"
    writer.write(b"{}")
    assert (await reader.read())[9:12] == b"200"
    writer.close()


def test_a_receiver_that_is_down_is_counted_each_time_and_logged_once() -> None:
    metrics = SidecarMetrics()
    log = DeliveryLog("approvals.example.com:443", metrics)
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            log.failed("timeout", "no response within 10 s")
        log.delivered()
        log.delivered()
    assert [each["event"] for each in lines] == ["approval_not_sent", "approvals_sent_again"]
    assert metrics.webhook_messages.family().points == {("timeout",): 3, ("delivered",): 2}
