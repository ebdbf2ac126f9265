"""Lays the arena out, starts the sandbox in it, and has every attack tried in one go."""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path

import pytest
from fumehood_sandbox import (
    Backend,
    Executable,
    Level,
    Limits,
    Mount,
    Policy,
    Program,
    PythonModule,
    SandboxedProcess,
    launch,
)
from fumehood_sandbox.interpreter import stage_interpreter
from fumehood_sandbox.outside.landlock import supported_abi

from tests.attacks.inside.kit import ABSENT, DONE, RELAY, Attack
from tests.sandbox.harness import BOUND_S, processes_below, read_to_end, running

_NOT_FAMILIES = {"__init__", "kit", "numbers", "runner"}
INSIDE = Path(__file__).parent / "inside"
FAMILIES = tuple(sorted({path.stem for path in INSIDE.glob("*.py")} - _NOT_FAMILIES))
_NEED_SCOPES = {f"processes/{name}_first_process" for name in ("signal", "kill", "queue_signal")}
_NEED_SCOPES |= {"processes/signal_everybody"}
_ABI_WITH_SCOPES = 6
_LOOK_AGAIN_S = 0.05
LURE = f"fumehood-attacks-{os.getpid()}"
LURE_KEY = 0x46000000 + 2 * os.getpid()
"""Other runs of these tests may be under way. The attacks use the next key as well, inside."""
LEVELS = tuple(Level)
_CODE = "/run/fumehood/attacks"
AS_MODULE = PythonModule("tests.attacks.inside.runner", path=(_CODE,))
"""In the interpreter that has applied the layers to itself."""
_START = f"import sys; sys.path.insert(0, {_CODE!r}); from tests.attacks.inside.runner import main; main()"
AS_EXECUTABLE = Executable((stage_interpreter(), "-I", "-S", "-c", _START))
"""In a program that has replaced it."""
_LIMITS = Limits(scratch_bytes=16 << 20, file_size_bytes=8 << 20, processes=64)

Report = dict[str, list[str]]


def attacks(place: str) -> dict[str, Attack]:
    """Every attack that is tried at this level, or beside a relay, by "family/attack"."""
    return {
        f"{family}/{attack.name}": attack
        for family in FAMILIES
        for attack in import_module(f"tests.attacks.inside.{family}").ATTACKS
        if place in attack.levels
    }


def lay_out(folder: Path) -> None:
    """What is granted, and what lies beside it. All of it is open to everybody, as far as its modes go."""
    for name in ("read", "write", "outside", "home/.ssh", "home/venv/bin"):
        (folder / name).mkdir(parents=True)
    for name in ("read/file", "write/file", "outside/canary", "home/.ssh/id", "home/venv/bin/python"):
        (folder / name).write_text("untouched")
    (folder / "read" / "out").symlink_to(folder / "outside" / "canary")
    (folder / "read" / "in").symlink_to(folder / "read" / "file")
    shutil.copyfile(os.path.realpath(sys.executable), folder / "read" / "program")
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o777)


def _served(process: SandboxedProcess) -> ExitStack:
    """Take what connects to the relay and hang up, until it is closed: more would wait than its queue holds."""
    stack = ExitStack()
    relay = process.relay
    if relay is None:
        return stack
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            if select.select([relay], [], [], _LOOK_AGAIN_S)[0]:
                relay.accept()[0].close()

    thread = threading.Thread(target=serve)
    thread.start()
    stack.callback(thread.join)
    stack.callback(over.set)
    return stack


def lacking(name: str, attacked: str) -> str:
    """What this kernel or architecture doesn't have, if the denial of this attack rests on it; else nothing."""
    if attacked == ABSENT:
        return "this kernel or architecture has no such call"
    if name in _NEED_SCOPES and supported_abi() < _ABI_WITH_SCOPES:
        # Without them pid 1 is held by the kernel alone, which drops signals to it that it doesn't handle.
        return f"Landlock has no scopes before ABI {_ABI_WITH_SCOPES}, this kernel has {supported_abi()}"
    return ""


def by_family(wanted: dict[str, Attack]) -> dict[str, dict[str, Attack]]:
    """The same attacks, family by family."""
    families: dict[str, dict[str, Attack]] = {}
    for name, attack in wanted.items():
        families.setdefault(name.partition("/")[0], {})[name] = attack
    return families


def promises(wanted: dict[str, Attack]) -> pytest.MarkDecorator:
    """The mark of a case that has tried all of these."""
    return pytest.mark.promise(*sorted({attack.promise for attack in wanted.values()}))


def assert_held(found: Report, wanted: dict[str, Attack]) -> None:
    """Each of these attacks was tried and denied, and what is allowed beside it worked.

    Skips what this machine lacks, once the rest has held.
    """
    tried = {name: found.get(name, ["it was not tried", ""]) for name in wanted}
    lacks = {name: reason for name, (attacked, _) in tried.items() if (reason := lacking(name, attacked))}
    failed = {
        name: f"attack: {attacked}; control: {control}"
        for name, (attacked, control) in tried.items()
        if name not in lacks and not (attacked in wanted[name].denied and control == DONE)
    }
    assert failed == {}, failed
    if lacks:
        pytest.skip(f"the others held, these can't be tried here: {lacks}")


@contextmanager
def lures(folder: Path) -> Iterator[int]:
    """What the launcher leaves for everybody of this machine to find: sockets, and ipc of each kind, open to all.

    Gives the TCP port on which it listens.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    flags = 0o1666  # IPC_CREAT
    memory, queue, semaphores = (
        libc.shmget(LURE_KEY, 4096, flags),
        libc.msgget(LURE_KEY, flags),
        libc.semget(LURE_KEY, 1, flags),
    )
    assert min(memory, queue, semaphores) >= 0, os.strerror(ctypes.get_errno())
    named = Path("/dev/shm", LURE)  # noqa: S108 - the host's, on purpose
    named.write_text("canary")
    with (
        socket.socket(socket.AF_UNIX) as path,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as granted,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_INET) as internet,
    ):
        path.bind(str(folder / "outside" / "socket"))
        (folder / "outside" / "socket").chmod(0o777)
        granted.bind(str(folder / "read" / "socket"))
        (folder / "read" / "socket").chmod(0o777)
        abstract.bind("\0" + LURE)
        internet.bind(("127.0.0.1", 0))
        for listening in (path, granted, abstract, internet):
            listening.listen()
            with socket.socket(listening.family, listening.type) as control:
                control.connect(listening.getsockname())
        try:
            yield internet.getsockname()[1]
        finally:
            named.unlink()
            (folder / "outside" / "socket").unlink()
            (folder / "read" / "socket").unlink()
            libc.shmctl(memory, 0, None)
            libc.msgctl(queue, 0, None)
            libc.semctl(semaphores, 0, 0)


def report(
    folder: Path,
    level: Level,
    backend: Backend = Backend.NAMESPACES,
    *,
    program: Program = AS_MODULE,
    relay: bool = False,
) -> Report:
    """Start a sandbox of this level and have every attack tried in it."""
    lay_out(folder)
    read = (str(folder / "read"),) if level.allows(Level.READ) else ()
    write = (str(folder / "write"),) if level.allows(Level.WRITE) else ()
    code = Mount(str(INSIDE), f"{_CODE}/tests/attacks/inside")
    policy = Policy(
        level=level, runtime=(code,), read=read, write=write, limits=_LIMITS, identity="attacker",
        environment=(("GIVEN", "yes"),), minimum=backend, relay=relay,
    )  # fmt: skip
    idle = Policy(level=Level.NONE, identity="attacker", minimum=backend)  # of the same user
    with (
        lures(folder) as port,
        running(folder.parent, "signal.pause()", idle, backend=backend) as beside,
        launch(policy, program, timeout_s=BOUND_S, backend=backend) as process,
    ):
        arena = {
            "families": FAMILIES,
            "level": RELAY if relay else str(level),
            "read": "".join(read),
            "write": "".join(write),
            "outside": str(folder / "outside"),
            "home": str(folder / "home"),
            "outside_pids": [os.getpid(), *processes_below(beside.pid)],
            "host_uid": os.getuid(),
            "lure": LURE,
            "lure_key": LURE_KEY,
            "lure_port": port,
        }
        served = _served(process)
        os.write(process.stdin, json.dumps(arena).encode() + b"\n")
        out, err = read_to_end(process)
        assert process.wait(BOUND_S) == 0, err
        served.close()
        assert beside.poll() is None, "the neighbour was ended"
    found: Report = json.loads(out)
    return found
