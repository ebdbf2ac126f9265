"""Supervisor of the MCP server's process: binds its socket, starts it, starts it anew where it ends, ends it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.util import find_spec

from fumehood_server.config.config import SidecarConfig
from fumehood_server.config.listen import Listen
from fumehood_server.config.mcp import McpConfig
from fumehood_server.launches import end_off_loop, import_path, start_off_loop
from fumehood_server.mcp.errors import McpMissingError
from fumehood_server.mcp.http_settings import PATH, HttpSettings
from fumehood_server.rpc.sockets import ListenFailedError
from fumehood_server.telemetry import get_logger

FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 30.0
STEADY_S = 60.0
"""A process that served for so long has the first backoff again."""

READY_TIMEOUT_S = 60.0
"""From its start until it takes requests: a second or two, and several times that while a machine starts all it has.
One that takes longer hangs, such as on a file of a network that is not there."""

END_GRACE_S = 5.0
"""After SIGTERM. The process itself gives streams one second."""

_BACKLOG = 1024
"""What comes while the process starts, or starts anew, waits in the kernel."""

_BODY_OVERHEAD_BYTES = 64 * 1024
_MODULES = ("httptools", "mcp", "uvicorn")
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from fumehood_server.mcp.http.main import main; main()"


class McpHealth:
    """Whether the MCP server takes requests. For one event loop."""

    __slots__ = ("on_change", "serves")

    def __init__(self) -> None:
        """It does not yet."""
        self.serves = False
        self.on_change: Callable[[], None] = lambda: None

    def set(self, *, serves: bool) -> None:
        """From now on it does, or doesn't."""
        self.serves = serves
        self.on_change()


@contextlib.asynccontextmanager
async def open_mcp(
    config: SidecarConfig, health: McpHealth, on_bound: Callable[[tuple[str, ...]], None] = lambda _: None
) -> AsyncIterator[None]:
    """Have MCP clients served over HTTP for the length of the block, where the configuration says so.

    `on_bound` is told its addresses, as HOST:PORT.

    Raises:
        McpMissingError: its libraries are not installed.
        ListenFailedError: its address can't be had.
    """
    mcp = config.mcp
    if mcp is None:
        yield
        return
    check_installed()
    with _bound(mcp.listen) as sock:
        host, port = sock.getsockname()[:2]
        scheme = "http" if mcp.tls is None else "https"
        target = Listen(host=host, port=port).target
        on_bound((target,))
        url = f"{scheme}://{target}{PATH}"
        get_logger().info("mcp_listening", url=url)
        supervising = asyncio.create_task(_supervise(config, mcp, sock, health))
        try:
            yield
        finally:
            supervising.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await supervising


def check_installed() -> None:
    """Look for the libraries, and import none.

    Raises:
        McpMissingError: one is not there.
    """
    for name in _MODULES:
        if find_spec(name) is None:
            raise McpMissingError(name)


@contextlib.contextmanager
def _bound(listen: Listen) -> Iterator[socket.socket]:
    try:
        found = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)
        family, _, _, _, where = found[0]
        sock = socket.create_server(where[:2], family=family, backlog=_BACKLOG)
    except OSError as exc:
        raise ListenFailedError(listen.target, exc.strerror or str(exc), _REMEDY) from exc
    with sock:
        yield sock


_REMEDY = "stop what is there, or name another address: `listen` in [mcp] of fumehood.toml"


async def _supervise(config: SidecarConfig, mcp: McpConfig, sock: socket.socket, health: McpHealth) -> None:
    """Start it, and start it anew after a backoff whenever it ends, until this is cancelled."""
    log, backoff_s = get_logger(), FIRST_BACKOFF_S
    now = asyncio.get_running_loop().time
    while True:
        began = now()
        try:
            status = await _run_once(config, mcp, sock, health)
        except OSError as exc:  # a TimeoutError among them
            log.warning("mcp_start_failed", problem=str(exc), retry_s=backoff_s)
        else:
            backoff_s = FIRST_BACKOFF_S if now() - began > STEADY_S else backoff_s
            log.warning("mcp_ended", status=status, retry_s=backoff_s)
        await asyncio.sleep(backoff_s)
        backoff_s = min(backoff_s * 2, MAX_BACKOFF_S)


async def _run_once(config: SidecarConfig, mcp: McpConfig, sock: socket.socket, health: McpHealth) -> int:
    """One life of the process. Returns its exit status. Cancelled, it ends the process first.

    Raises:
        OSError: it can't be started.
        TimeoutError: it took no requests within `READY_TIMEOUT_S`, and was ended.
    """
    ready, theirs = os.pipe()
    with os.fdopen(ready, "rb", 0) as ready_file:
        settings = _settings(config, mcp, sock.fileno(), theirs)
        try:
            process = await start_off_loop(functools.partial(_launch, settings), undo=_kill)
        finally:
            os.close(theirs)
        exited = asyncio.create_task(_exit_of(process))
        try:
            try:
                async with asyncio.timeout(READY_TIMEOUT_S):
                    await _readable(ready_file.fileno())
            except TimeoutError:
                raise TimeoutError(f"it took no requests within {READY_TIMEOUT_S:g} s, and was ended") from None
            if ready_file.read(1):
                get_logger().info("mcp_serving", pid=process.pid)
                health.set(serves=True)
            return await asyncio.shield(exited)
        finally:
            health.set(serves=False)
            if not exited.done():
                await end_off_loop(functools.partial(_end, process))
            exited.cancel()


async def _exit_of(process: subprocess.Popen[bytes]) -> int:
    """Its exit status, by a pidfd."""
    descriptor = os.pidfd_open(process.pid)
    try:
        await _readable(descriptor)
    finally:
        os.close(descriptor)
    return process.wait()


async def _readable(descriptor: int) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def _launch(settings: HttpSettings) -> subprocess.Popen[bytes]:
    # No environment: an operator may keep secrets there. -I -S: nothing but what the sidecar itself imports from.
    # A session of its own: SIGINT from a terminal is for the sidecar, which drains.
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, *import_path()],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd="/",
        env={"GRPC_VERBOSITY": "NONE"},
        pass_fds=(settings.listen_fd, settings.ready_fd),
        start_new_session=True,
    )
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(settings.to_json())
    return process


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_GRACE_S)
    except subprocess.TimeoutExpired:
        _kill(process)


def _settings(config: SidecarConfig, mcp: McpConfig, listen_fd: int, ready_fd: int) -> HttpSettings:
    return HttpSettings(
        target=mcp.socket.target,
        parent_pid=os.getpid(),
        listen_fd=listen_fd,
        ready_fd=ready_fd,
        is_local=mcp.listen.is_local,
        allowed_hosts=mcp.allowed_hosts,
        allowed_origins=mcp.allowed_origins,
        authorization_servers=mcp.authorization_servers,
        allow_anonymous=mcp.allow_anonymous,
        tls_certificate="" if mcp.tls is None else str(mcp.tls.certificate),
        tls_key="" if mcp.tls is None else str(mcp.tls.key),
        tls_client_ca="" if mcp.tls is None or mcp.tls.client_ca is None else str(mcp.tls.client_ca),
        # JSON of the arguments with as many escapes as it has characters, and what stands around it.
        max_body_bytes=2 * config.server.max_arguments_bytes + _BODY_OVERHEAD_BYTES,
        max_sessions=mcp.max_sessions,
        session_idle_s=mcp.session_idle_s,
        max_requests=mcp.max_requests,
        max_connections=config.server.max_connections,
        log_level=config.server.log_level.value,
        log_is_terminal=sys.stderr.isatty(),
    )
