"""`tools/call` over Streamable HTTP: the sidecar's MCP server, sandbox and journal behind it, beside FastMCP's."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import grpc
from fumehood_server.callers.token_file import changing, make_token
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench.clients.mcp_http import MODERN
from bench.harness.processes import READY_S, python, read_line, running
from bench.harness.report import Report, Row, Target
from bench.harness.rounds import Effort, Entrant, Pair, ratio, take_turns
from bench.harness.sidecar import echo_config, sidecar, until_serving

ISSUE = 14
"""Whose target this is, counted like `report.ISSUE`."""

HANDSHAKE = "2025-11-25"
REVISIONS = (MODERN, HANDSHAKE)
OURS, THEIRS = "fumehood", "FastMCP"
_NOTE = (
    "The client of both sends the bytes that an SDK sends, with less work than one. FastMCP runs the echo in its own"
    " process, of no sandbox, and is shown no token."
)
_CALLER = "bench"


async def measure(effort: Effort, folder: Path) -> Report:
    """Measure both servers in both revisions, turn by turn."""
    async with _fastmcp() as theirs, _sidecar(folder) as (ours, token):
        taken = await take_turns(
            [
                Entrant(_name(who, revision), python("bench.clients.mcp_http", url, revision, *shown))
                for revision in REVISIONS
                for who, url, shown in ((OURS, ours, (token,)), (THEIRS, theirs, ()))
            ],
            effort,
        )
    return Report(
        rows=[_row(name, pairs) for name, pairs in taken.items()],
        targets=[
            target
            for revision in REVISIONS
            for target in _targets(revision, taken[_name(OURS, revision)], taken[_name(THEIRS, revision)])
        ],
        notes=[_NOTE],
    )


def _name(who: str, revision: str) -> str:
    return f"{who}, {revision}"


def _row(name: str, pairs: Sequence[Pair]) -> Row:
    return Row(
        "tools/call over HTTP, 256 B",
        name,
        {
            "p50_ms": median(pair.single.p50_ms for pair in pairs),
            "p99_ms": median(pair.single.p99_ms for pair in pairs),
            "p50_ms at 32": median(pair.parallel.p50_ms for pair in pairs),
            "per_s at 32": median(pair.parallel.per_s for pair in pairs),
        },
    )


def _targets(revision: str, ours: Sequence[Pair], theirs: Sequence[Pair]) -> list[Target]:
    p50 = ratio([pair.single.p50_ms for pair in ours], [pair.single.p50_ms for pair in theirs])
    rate = ratio([pair.parallel.per_s for pair in ours], [pair.parallel.per_s for pair in theirs])
    return [
        Target(f"tools/call p50 / FastMCP's, {revision}", p50, 0.8, issue=ISSUE),
        Target(f"tools/call rate at 32 / FastMCP's, {revision}", rate, 1.25, at_least=True, issue=ISSUE),
    ]


@asynccontextmanager
async def _fastmcp() -> AsyncIterator[str]:
    command = python("bench.peers.fastmcp_server")
    async with running(command) as process:
        yield f"http://127.0.0.1:{int(await read_line(process, command))}/mcp"


@asynccontextmanager
async def _sidecar(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """The endpoint of a sidecar with the echo, and a token for it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = echo_config(folder)
    more = f'\n[mcp]\nlisten = "127.0.0.1:{port}"\n[[caller]]\nname = "{_CALLER}"\ntools = ["*"]\n'
    config.write_text(config.read_text(encoding="utf-8") + more, encoding="utf-8")
    async with sidecar(config) as ours:
        await until_serving(ours.address)
        with changing(folder / ".fumehood" / "tokens.json") as tokens:
            text, token = make_token(_CALLER, None, tokens)
            tokens.append(token)
        await _until_mcp_serves(ours.address)
        yield f"http://127.0.0.1:{port}/mcp", text


async def _until_mcp_serves(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        request = health_pb2.HealthCheckRequest(service="mcp")
        async for answer in health_pb2_grpc.HealthStub(channel).Watch(request, timeout=READY_S):
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return
