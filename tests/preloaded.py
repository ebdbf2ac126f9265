"""Fork server for tests: processes of our Python code whose imports are done already.

Several hundred tests start a sidecar or a command, and importing it is most of what each costs: a second of
processor. A `Popen` here is a fork of a process that has imported the sidecar and tried what the machine can enforce,
as any process does once that starts sandboxes, and done nothing else: that trial is more than half of what the start of
a sidecar costs then. In every other respect it is the process that `subprocess.Popen` would start: one of its own, with
one thread, its own arguments, environment, folder and streams and no descriptor beside them, that runs the same code as
`__main__` and takes signals. What is forked has neither opened a channel nor started a thread, so gRPC and uvloop start
in the child as they would in a new process, and it finds its cgroups and makes its namespaces by itself. It ends with a
status of its own after its threads and exit functions; only the modules are not torn down, one by one, since a fork
would copy all their memory for that.

What depends on the interpreter's start, end or memory (a variable for Python itself, other users, a program before it)
or on what the machine has (a PATH, a mount namespace) is a new process as ever; tests of that use `subprocess` itself.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, AnyStr, NoReturn

PYTHON = (sys.executable, "-P")
"""The beginning of a command that is forked; "-c" and code or "-m" and a module follow."""

_OF_THE_INTERPRETER = {"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
"""Variables for Python itself that a fork heeds, or has from the test's process."""

_LAZY = (
    *("rich.console", "rich.table", "rich.text", "rich.syntax", "rich.markup", "rich.padding", "rich.panel"),
    *("pydantic.main", "grpc.aio", "uvloop", "difflib", "unicodedata"),
    *("fumehood_server.orchestration.engines.model_engine", "pydantic_ai.models.openai"),
)
"""What commands import when they first need it."""


class Popen(subprocess.Popen[AnyStr]):
    """A command that begins with `PYTHON`, forked; whatever else it is given is a new process."""

    _connection: socket.socket | None = None

    def _execute_child(  # noqa: PLR0917 - as subprocess calls it
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any, *rest: Any
    ) -> None:
        if not _can_be_forked(args, env):
            super()._execute_child(args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest)  # type: ignore[misc]
            return
        pipes = rest[3:9]  # as in subprocess: p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite
        streams: list[int] = [own if pipe == -1 else pipe for own, pipe in enumerate((pipes[0], pipes[3], pipes[5]))]
        umask = os.umask(0o077)
        os.umask(umask)
        start = {
            "umask": umask,
            "command": [os.fspath(each) for each in args[len(PYTHON) :]],
            "environment": dict(os.environ if env is None else env),
            "folder": os.fspath(cwd or os.getcwd()),  # noqa: PTH109 - as a string
        }
        self._connection, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(_fork_server(), [b"."], [theirs.fileno(), *streams])
        self._connection.sendall(json.dumps(start).encode())
        self._connection.shutdown(socket.SHUT_WR)
        self.pid = int(self._received())
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _received(self) -> bytes:
        assert self._connection is not None
        number = self._connection.recv(8)
        assert len(number) == 8, "the fork server is gone"
        return number

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._connection is None:
            result: tuple[int, int] = super()._try_wait(wait_flags)  # type: ignore[misc]
            return result
        if wait_flags & os.WNOHANG and not select.select([self._connection], [], [], 0)[0]:
            return 0, 0
        status = int(self._received())
        self._connection.close()
        return self.pid, status

    def _internal_poll(self, *args: Any, **more: Any) -> int | None:
        if self._connection is not None:
            more["_waitpid"] = lambda _, flags: self._try_wait(flags)
        ended: int | None = super()._internal_poll(*args, **more)  # type: ignore[misc]
        return ended


def run(
    command: Sequence[str],
    *,
    timeout: float,
    stdin: bytes | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> tuple[int, bytes, bytes]:
    """Status, stdout and stderr of a command, as by `subprocess.run`."""
    given = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    pipe = subprocess.PIPE
    started: subprocess.Popen[bytes] = Popen(command, stdin=given, stdout=pipe, stderr=pipe, cwd=cwd, env=env)
    with started as process:
        try:
            stdout, stderr = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired as late:
            process.send_signal(signal.SIGABRT)  # at which it says where each of its threads is
            late.add_note(process.communicate()[1].decode(errors="replace"))
            raise
        except BaseException:
            process.kill()
            raise
        return process.wait(), stdout, stderr


def _can_be_forked(args: Any, env: Mapping[str, str] | None) -> bool:
    if isinstance(args, str) or tuple(args[:2]) != PYTHON or args[2] not in {"-c", "-m"}:
        return False
    changed = {key for key, value in (env or {}).items() if os.environ.get(key) != value}
    new = ("PYTHON", "LD_", "LC_", "LANG", "PATH")
    return not any(key.startswith(new) for key in changed - _OF_THE_INTERPRETER)


@functools.cache
def _fork_server() -> socket.socket:
    """The connection to this process's fork server, which ends with it."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    command = [sys.executable, "-P", __file__, str(theirs.fileno())]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    subprocess.run(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment, check=True)
    theirs.close()
    atexit.register(ours.close)
    return ours


def _serve(requests: int) -> None:
    """Fork a child for each request, and tell its pid and its end, until the other side is closed."""
    # Python took it for ignored if pytest's process ignores it, as those of xdist do.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    connections: dict[int, tuple[int, int]] = {}  # a child's pidfd → its pid, and where its status is sent
    events = select.poll()
    events.register(requests, select.POLLIN)
    while True:
        for ready, _ in events.poll():
            if ready != requests:
                pid, connection = connections.pop(ready)
                _tell(connection, os.waitpid(pid, 0)[1])
                events.unregister(ready)
                os.close(ready)
                os.close(connection)
                continue
            with socket.socket(fileno=os.dup(requests)) as asked:
                received = socket.recv_fds(asked, 1, 4)[1]
            if not received:
                return
            connection, *streams = received
            pid = os.fork()
            if pid == 0:
                _become(connection, streams)
            for stream in streams:
                os.close(stream)
            _tell(connection, pid)
            pidfd = os.pidfd_open(pid)
            connections[pidfd] = (pid, connection)
            events.register(pidfd, select.POLLIN)


def _tell(connection: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(connection, b"%08d" % number)


def _import_everything() -> None:
    fumehood_server = importlib.import_module("fumehood_server")
    for found in pkgutil.walk_packages(fumehood_server.__path__, "fumehood_server."):
        if not found.name.endswith("__main__") and ".inside" not in found.name and ".scaffold" not in found.name:
            importlib.import_module(found.name)
    for name in _LAZY:
        importlib.import_module(name)
    stage_files = importlib.import_module("fumehood_sandbox.outside.stage_files")
    for stage in stage_files._PARTS:  # compiled once, as modules are
        stage_files._code(stage)
    assert len(os.listdir("/proc/self/task")) == 1, "what is imported starts no threads"  # noqa: PTH208


def _try_the_machine() -> None:
    """Starts sandboxes, and the thread that does so: what comes after is to be done by a fork, which has neither."""
    sandbox = importlib.import_module("fumehood_sandbox")
    with contextlib.suppress(sandbox.SandboxUnavailableError):  # each fork finds that for itself
        sandbox.check()


def _become(connection: int, streams: Sequence[int]) -> NoReturn:
    """Run what is asked for on `connection` as a new interpreter would, and end like one."""
    status = 0
    try:
        _run(*_prepared(connection, streams))
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if not isinstance(ended.code, int | None):
            print(ended.code, file=sys.stderr)  # noqa: T201 - as Python does
    except BaseException:  # noqa: BLE001 - as Python does
        sys.excepthook(*sys.exc_info())
        status = 1
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(status & 0xFF)


def _prepared(connection: int, streams: Sequence[int]) -> list[str]:
    """Take the streams, folder and environment of the command, and return it."""
    text = b""
    while piece := os.read(connection, 1 << 16):
        text += piece
    start = json.loads(text)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)  # noqa: PTH208
    os.chdir(start["folder"])
    os.umask(start["umask"])
    os.environ.clear()
    os.environ.update(start["environment"])
    faulthandler.enable(2)
    lines = "PYTHONUNBUFFERED" in os.environ or os.isatty(1)
    sys.stdout.reconfigure(line_buffering=lines)  # type: ignore[union-attr]
    command: list[str] = start["command"]
    return command


def _run(option: str, what: str, *arguments: str) -> None:
    sys.argv = ["-c", *arguments]
    if option == "-m":
        sys.argv[0] = what
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.modules["__main__"] = main = ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), main.__dict__)  # noqa: S102 - what `-c` does


if __name__ == "__main__":
    if os.fork():
        os._exit(0)  # nobody's child: there are tests that look at all children of their process
    _import_everything()
    _try_the_machine()
    gc.collect()
    gc.freeze()
    if os.fork():
        os._exit(0)
    _serve(int(sys.argv[1]))
