"""The MCP server's process: reads its settings from stdin, and serves Streamable HTTP until SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import signal
import socket
import sys
import warnings
from typing import Any

import uvicorn
import uvloop
from mcp.shared.exceptions import MCPDeprecationWarning
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from fumehood_server.mcp.http.app import mcp_app
from fumehood_server.mcp.http.connections import BoundedConnection
from fumehood_server.mcp.http.tls import ServerTls
from fumehood_server.mcp.http_settings import HttpSettings
from fumehood_server.mcp.sidecar_link import SidecarLink
from fumehood_server.telemetry import configure_logging

_PR_SET_PDEATHSIG = 1

GRACE_S = 1
"""After SIGTERM, for answers to be written: the sidecar has let calls finish before. Streams are cut."""

KEEP_ALIVE_S = 75

HANDSHAKE_TIMEOUT_S = 10.0
"""Of TLS. A connection is counted once it is there."""

_BACKLOG = 1024
_TALKATIVE = ("mcp", "uvicorn.error")
"""Loggers that warn of each request that is wrong: whoever can connect would fill the log."""


def main() -> None:
    """Serve. Returns after SIGTERM."""
    # The kernel ends it with the sidecar, however that ends (prctl(2)).
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal: the sidecar says when to end
    settings = HttpSettings.from_json(sys.stdin.buffer.read())
    if os.getppid() != settings.parent_pid:  # it ended before prctl
        return
    flush = configure_logging(settings.log_level, terminal=settings.log_is_terminal)
    for each in _TALKATIVE:
        logging.getLogger(each).setLevel(logging.ERROR)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_no_departure)
    # Logging and the handshake are of the past in 2026-07-28, and of the present in 2025-11-25.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    try:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.run(_serve(settings))
    finally:
        flush()


def _is_no_departure(record: logging.LogRecord) -> bool:
    """Whether a record is of anything but a client that left before its request's body was there.

    For 2025-11-25 the SDK takes that for a fault of its own, and logs it as an error; `RequestBounds` ends it else.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], ClientDisconnect))


async def _serve(settings: HttpSettings) -> None:
    tls = None
    if settings.tls_certificate:
        tls = ServerTls(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
    async with contextlib.AsyncExitStack() as stack:
        link = await stack.enter_async_context(SidecarLink(settings.target))
        app = await stack.enter_async_context(mcp_app(settings, link))
        server = _Server(_config(settings, app, tls), settings.ready_fd)
        if tls is not None:
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            # A context can't forget an authority: the sidecar starts this process anew.
            watching = tasks.create_task(tls.watch(on_authorities=server.end))
            stack.callback(watching.cancel)
        sock = stack.enter_context(socket.socket(fileno=settings.listen_fd))
        gc.collect()
        gc.freeze()  # a collection would look at all that was imported, for 50 ms
        await server.serve(sockets=[sock])


def _config(settings: HttpSettings, app: ASGIApp, tls: ServerTls | None) -> uvicorn.Config:
    context = None if tls is None else tls.context
    return uvicorn.Config(
        app,
        http=BoundedConnection.of_at_most(settings.max_connections),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        ssl_context_factory=None if context is None else lambda _config, _default: context,
    )


class _Loop(uvloop.Loop):
    """uvloop's event loop, whose servers don't wait a minute for TLS. uvicorn has no option for it."""

    async def create_server(  # type: ignore[override] # one signature for the three of uvloop
        self,
        *arguments: Any,  # noqa: ANN401 - as they are there
        **options: Any,  # noqa: ANN401
    ) -> asyncio.AbstractServer:
        if options.get("ssl") is not None:
            options.setdefault("ssl_handshake_timeout", HANDSHAKE_TIMEOUT_S)
        return await super().create_server(*arguments, **options)


class _Server(uvicorn.Server):
    """uvicorn's server, which says when it takes requests."""

    def __init__(self, config: uvicorn.Config, ready_fd: int) -> None:
        super().__init__(config)
        self._ready_fd = ready_fd

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        os.write(self._ready_fd, b".")
        os.close(self._ready_fd)

    def end(self) -> None:
        """Take no more requests, and return from `serve` once those under way have ended, or after `GRACE_S`."""
        self.should_exit = True
