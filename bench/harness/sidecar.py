"""A sidecar of its own for one scenario: configuration, process, first sign of life."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench.harness.processes import READY_S, ROOT, running

ECHO = ROOT / "bench" / "plugins" / "echo"


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A sidecar that serves."""

    address: str
    pid: int


def write_config(folder: Path, plugins: str) -> Path:
    """Write a fumehood.toml that says nothing but where to listen and which plugins there are."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "fumehood.toml"
    config.write_text(f'[server]\nlisten = ["{address(folder)}"]\n\n{plugins}', encoding="utf-8")
    return config


def echo_config(folder: Path) -> Path:
    """Write the configuration of a sidecar whose one plugin is the echo."""
    return write_config(folder, f'[[plugin]]\npath = "{ECHO}"\n')


def address(folder: Path) -> str:
    """Return where the sidecar of a folder listens."""
    return f"unix:{folder}/sidecar.sock"


SERVE = (sys.executable, "-m", "fumehood_server", "serve")
"""The sidecar as an operator starts it."""


@asynccontextmanager
async def sidecar(config: Path, command: Sequence[str] = SERVE) -> AsyncIterator[Sidecar]:
    """Start `fumehood serve`, or what stands for it, and end it. Its log goes to a file beside the configuration."""
    with (config.parent / "sidecar.log").open("ab") as log:
        async with running((*command, "--config", str(config)), stderr=log.fileno()) as process:
            yield Sidecar(address(config.parent), process.pid)


async def until_serving(where: str, timeout_s: float = READY_S) -> None:
    """Wait until a sidecar says that it serves.

    Raises:
        grpc.aio.AioRpcError: it did not within `timeout_s`.
    """
    async with grpc.aio.insecure_channel(where, options=QUICK_RECONNECT) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        await stub.Check(health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=timeout_s)


QUICK_RECONNECT = (("grpc.initial_reconnect_backoff_ms", 20), ("grpc.min_reconnect_backoff_ms", 20))
"""gRPC waits a second between two attempts to connect; a start would be measured in whole seconds."""
