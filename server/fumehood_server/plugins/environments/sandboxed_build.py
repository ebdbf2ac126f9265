"""Runs a plugin's build command in a sandbox, on a copy of its folder, with egress to granted hosts alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import threading
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from fumehood_sandbox import (
    Executable,
    Level,
    Limits,
    Policy,
    SandboxedProcess,
    SandboxError,
    authorities_runtime,
    launch,
    system_runtime,
)

from fumehood_server.config.config import SidecarConfig
from fumehood_server.config.listeners import own_listeners
from fumehood_server.egress import EgressEvent, Outcome, RequestOrigin, access_for, open_broker, open_relay
from fumehood_server.model.text import printable
from fumehood_server.plugins.environments.build import Say, build_environment
from fumehood_server.plugins.environments.contents import contents_bytes
from fumehood_server.plugins.environments.environments import Environment, Environments
from fumehood_server.plugins.environments.errors import HostsRefusedError, InstallerError
from fumehood_server.plugins.environments.installer import MAX_BYTES, TIME_LIMIT_S
from fumehood_server.plugins.environments.record import Record
from fumehood_server.plugins.launch.executables import find_executable
from fumehood_server.plugins.launch.program import SEARCH_PATH

_GIB = 1024**3
LIMITS = Limits(
    memory_bytes=8 * _GIB,  # without a cgroup it counts address space, of which Node reserves much
    cpu_s=3600,
    processes=512,
    open_files=4096,
    file_size_bytes=2 * _GIB,
    scratch_bytes=2 * _GIB,
    scratch_files=1_000_000,
)
"""Of a build: what compilers and package managers of large projects take. npm keeps a cache of small files in /tmp."""
_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
_POLL_S = 1.0
_TOLD_LINES = 12
_TOLD_BYTES = 8192
_TOLD_PROBLEMS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildCommand:
    """A build command with what its plugin's operator grants it."""

    plugin: str
    folder: Path
    command: tuple[str, ...]
    hosts: tuple[str, ...]
    """As NAME:PORT. None: the build has no network."""
    config: SidecarConfig
    """For `[sandbox]` and `[egress]`."""
    private: tuple[str, ...] = ()
    """Addresses that are not public and that it may reach beside those of `[egress]`, as in its `[[plugin]]`."""


def build_plugin(environments: Environments, environment: Environment, build: BuildCommand, say: Say) -> bool:
    """Build the plugin where `environment` names. False: it was there. Blocks; call it from the main thread.

    Raises:
        InstallerError: the command failed, was ended, or made what can't be used; or this machine can't sandbox it.
        OSError: the folder can't be written.
    """

    def fill(contents: Path, _staging: Path) -> Record:
        shutil.copytree(build.folder, contents, symlinks=True)
        for parent, _, names in os.walk(contents):  # the store's copies are nobody's to write
            for path in (Path(parent), *(Path(parent, name) for name in names)):
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode | 0o200)
        shown = printable(" ".join(build.command))
        say(f"running `{shown}` with {', '.join(build.hosts) or 'no network'}")
        try:
            asyncio.run(_run(build, contents, shown))
        except SandboxError as exc:
            raise InstallerError(f"`{shown}` can't be sandboxed: {exc}", "`fumehood doctor` says more") from exc
        return Record("", (), ())

    return build_environment(environments, environment, fill, say)


def _policy(build: BuildCommand, folder: Path) -> tuple[Policy, Executable]:
    search_path = f"{os.environ.get('PATH', '')}:{SEARCH_PATH}".lstrip(":")
    found = find_executable(build.command[0], folder, search_path=search_path)
    if found is None:
        raise InstallerError(f'"{printable(build.command[0])}" was not found', "install it, or correct `build`")
    relay = bool(build.hosts)
    environment = {
        "CI": "1",
        "HOME": "/tmp",  # noqa: S108 - the sandbox's own, a private tmpfs
        "LANG": "C.UTF-8",
        "PATH": SEARCH_PATH,
        # Node brings authorities of its own and takes the system's, which a mirror's may be among, only when told.
        **({"NODE_EXTRA_CA_CERTS": _AUTHORITIES} if relay and Path(_AUTHORITIES).exists() else {}),
    }
    policy = Policy(
        level=Level.EXTERNAL if relay else Level.WRITE,
        runtime=(*system_runtime(), *found.mounts, *(authorities_runtime() if relay else ())),
        write=(str(folder),),
        runs_written=True,  # scripts of the folder, and what compilers and packages make and run in their turn
        limits=LIMITS,
        environment=tuple(sorted(environment.items())),
        working_directory=str(folder),
        identity=f"build-{build.plugin}",
        cgroups=build.config.sandbox.cgroups,
        minimum=build.config.sandbox.minimum,
        relay=relay,
    )
    return policy, Executable((found.path, *build.command[1:]))


async def _run(build: BuildCommand, folder: Path, shown: str) -> None:
    """Run the command to its end. Nothing of it is left when this returns or raises."""
    problems: list[str] = []
    refused = False

    def note(event: EgressEvent) -> None:
        nonlocal refused
        refused = refused or event.outcome is Outcome.REFUSED
        if event.outcome in {Outcome.REFUSED, Outcome.FAILED} and len(problems) < _TOLD_PROBLEMS:
            problems.append(f"{event.outcome.value} {event.method} {event.shown}: {event.message}")

    # On this thread: the sandbox dies with the thread that started it (PR_SET_PDEATHSIG, prctl(2)).
    with launch(*_policy(build, folder)) as process:
        tail = _OutputTail(process)
        async with AsyncExitStack() as stack:
            listener, process.relay = process.relay, None
            if listener is not None:
                egress = build.config.egress
                # One tunnel carries many packages: what bounds a build bounds it.
                limits = replace(egress.limits, tunnel_timeout_s=TIME_LIMIT_S, max_tunnel_bytes=MAX_BYTES)
                access = access_for(
                    Level.EXTERNAL,
                    hosts=build.hosts,
                    allow_private=(*map(str, egress.private), *build.private),
                    limits=limits,
                )
                origin = RequestOrigin(build.plugin, "build")
                relay = open_relay(open_broker(note, own=own_listeners(build.config)))
                await stack.enter_async_context(relay.serve(listener, access, lambda: origin))
            status = await _ended(process, folder, shown)
        process.kill()  # what the command left running
        if status != 0:
            # Only now: programs end tunnels in their own ways, which is no matter where they have what they wanted.
            told = "\n".join((f"`{shown}` failed: it {process.exit_description}", tail.last_lines(), *problems))
            if refused:
                raise HostsRefusedError(told, "grant the hosts that it needs: build_hosts in its [[plugin]], or --host")
            raise InstallerError(told)


async def _ended(process: SandboxedProcess, folder: Path, shown: str) -> int:
    """The exit status, once the command has ended.

    Raises:
        InstallerError: it took too long or wrote too much.
    """
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(process.fileno(), ended.set)
    try:
        async with asyncio.timeout(TIME_LIMIT_S):
            while not ended.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_S):
                        await ended.wait()
                if await asyncio.to_thread(contents_bytes, folder) > MAX_BYTES:
                    raise InstallerError(f"`{shown}` made more than {MAX_BYTES} bytes", "build less")
    except TimeoutError:
        raise InstallerError(f"`{shown}` took longer than {TIME_LIMIT_S:g} s") from None
    finally:
        loop.remove_reader(process.fileno())
    status = process.poll()
    return 1 if status is None else status


class _OutputTail:
    """The last bytes of a process's stdout and stderr, read by a thread each so that it never waits for a reader."""

    def __init__(self, process: SandboxedProcess) -> None:
        self._kept = b""
        self._lock = threading.Lock()
        # Duplicates: the process closes its own when its block ends.
        self._threads = [
            threading.Thread(target=self._read, args=(os.dup(fd),), daemon=True)
            for fd in (process.stdout, process.stderr)
        ]
        for thread in self._threads:
            thread.start()

    def last_lines(self) -> str:
        """What it wrote last, for people. The process must have ended."""
        for thread in self._threads:
            thread.join(_POLL_S)
        lines = [
            line for each in self._kept.decode(errors="replace").splitlines() if (line := printable(each.rstrip()))
        ]
        return "\n".join(lines[-_TOLD_LINES:]) or "It wrote nothing."

    def _read(self, fd: int) -> None:
        with os.fdopen(fd, "rb", buffering=0) as stream:
            while piece := stream.read(_TOLD_BYTES):
                with self._lock:
                    self._kept = (self._kept + piece)[-_TOLD_BYTES:]
