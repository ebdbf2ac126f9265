"""Nothing that one call leaves anywhere is found by another: each channel, with the call that finds its own."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest
from fumehood_server.model.tool import Isolation

from .bench import Bench

pytestmark = [pytest.mark.promise("S701"), pytest.mark.asyncio(loop_scope="module")]


@dataclass(frozen=True)
class Channel:
    """`leave` puts something somewhere, `look` says in `result` whether it is there."""

    name: str
    leave: str
    look: str


_LIBC = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
"""

# It has answered, so it runs for sure.
_RUNNING = """
import subprocess
left = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE{more})
left.stdin.write(b"x"); left.stdin.flush(); left.stdout.read(1)
"""
_NAMES = """
import os
names = []
for pid in os.listdir("/proc"):
    try:
        names.append(open(f"/proc/{pid}/comm").read().strip())
    except OSError:
        pass
"""

CHANNELS = (
    Channel("module", "import json; json.LEFT = 1", "import json; result = hasattr(json, 'LEFT')"),
    Channel("global", "AT_IMPORT.append('left')", "result = 'left' in AT_IMPORT"),
    Channel("environment", "import os; os.environ['LEFT'] = '1'", "import os; result = 'LEFT' in os.environ"),
    Channel(
        "environment of C",
        _LIBC + "libc.setenv(b'LEFT_C', b'1', 1)",
        _LIBC + "libc.getenv.restype = ctypes.c_char_p; result = libc.getenv(b'LEFT_C') is not None",
    ),
    Channel("tmp", "open('/tmp/left', 'w').write('x')", "import os; result = os.path.exists('/tmp/left')"),
    Channel("shm", "open('/dev/shm/left', 'w').write('x')", "import os; result = os.path.exists('/dev/shm/left')"),
    Channel(
        "working directory",
        "open('left', 'w').write('x')",
        "import os; result = 'left' in os.listdir('.')",
    ),
    Channel(
        "System V memory",
        _LIBC + "assert libc.shmget(4711, 4096, 0o1666) >= 0",
        _LIBC + "result = libc.shmget(4711, 0, 0) >= 0",
    ),
    Channel(
        "System V semaphores",
        _LIBC + "assert libc.semget(4711, 1, 0o1666) >= 0",
        _LIBC + "result = libc.semget(4711, 0, 0) >= 0",
    ),
    Channel(
        "System V messages",
        _LIBC + "assert libc.msgget(4711, 0o1666) >= 0",
        _LIBC + "result = libc.msgget(4711, 0) >= 0",
    ),
    Channel(
        "POSIX semaphores",
        _LIBC + "assert libc.sem_open(b'/left', 0o100, 0o666, 1) not in (0, -1)",
        _LIBC + "result = libc.sem_open(b'/left', 0) not in (0, -1)",
    ),
    Channel(
        "descriptor",
        "import os\nfd = os.open('/tmp', os.O_RDONLY)\nos.dup2(fd, 77)",
        "import os\ntry:\n    os.fstat(77)\n    result = True\nexcept OSError:\n    result = False",
    ),
    Channel(
        "lock",
        "import fcntl; kept = open('/usr/bin/env', 'rb'); fcntl.flock(kept, fcntl.LOCK_SH)\n"
        "mine = open('/tmp/locked', 'w'); fcntl.lockf(mine, fcntl.LOCK_EX)",
        "import fcntl, os\n"
        "pid = os.fork() if os.path.exists('/tmp/locked') else None\n"
        "if pid == 0:\n"
        "    try:\n"
        "        fcntl.lockf(open('/tmp/locked', 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "    except OSError:\n"
        "        os._exit(1)\n"
        "    os._exit(0)\n"
        "result = pid is not None and os.waitpid(pid, 0)[1] != 0",
    ),
    Channel("process", _RUNNING.format(more=""), _NAMES + "result = 'cat' in names"),
    Channel(
        "process that left its session",
        _RUNNING.format(more=", start_new_session=True"),
        _NAMES + "result = 'cat' in names",
    ),
    Channel(
        "name of the process",
        _LIBC + "libc.prctl(15, b'left-here', 0, 0, 0)",
        _NAMES + "result = 'left-here' in names",
    ),
    Channel(
        "signal handler",
        "import signal; signal.signal(signal.SIGUSR1, lambda *_: None)",
        "import signal; result = signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL",
    ),
    Channel(
        "umask",
        "import os; os.umask(0o007)",
        "import os; now = os.umask(0o022); result = now == 0o007",
    ),
    Channel(
        "limit",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))",
        "import resource; result = resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 100",
    ),
    Channel(
        "host name",
        "from pathlib import Path; Path('/tmp/name').write_text('control: names can not be set at all')",
        "import os; result = os.uname().nodename != 'sandbox' or os.path.exists('/tmp/name')",
    ),
)


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.name)
async def test_next_call_does_not_find_what_a_call_left(shared: Bench, channel: Channel) -> None:
    assert await shared.run(f"{channel.leave}\n{channel.look}") is True, "control: the call finds its own"
    assert await shared.run(channel.look) is False


async def test_call_beside_another_does_not_find_what_that_one_left(shared: Bench) -> None:
    spec = shared.spec()
    for channel in CHANNELS:
        async with shared.holding(channel.leave, spec=spec):
            assert await shared.run(channel.look, spec=spec) is False, channel.name


_REFUSED = """
import errno, resource
def said(value):
    return errno.errorcode[ctypes.get_errno()] if value < 0 else "done"
"""


async def test_keyrings_are_refused_to_each_call(shared: Bench) -> None:
    """They belong to a user, whom all calls of a plugin share, and to no namespace: so nobody has any."""
    numbers = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}[os.uname().machine]
    leave = (
        _LIBC
        + _REFUSED
        + f"""
add, request, control = {numbers}
user = ctypes.c_long(-4)  # KEY_SPEC_USER_KEYRING
result = [
    said(libc.syscall(add, b"user", b"left", b"x", 1, user)),
    said(libc.syscall(request, b"user", b"left", None, user)),
    said(libc.syscall(control, 0, user, 1)),  # KEYCTL_GET_KEYRING_ID, and make it
    said(libc.syscall(control, 1, b"left")),  # KEYCTL_JOIN_SESSION_KEYRING
    said(libc.getpid()),
]
"""
    )
    spec = shared.spec()
    async with shared.holding(leave, spec=spec):
        assert await shared.run(leave, spec=spec) == ["EPERM"] * 4 + ["done"], "the last is the control"


async def test_message_queues_by_name_are_refused_to_each_call(shared: Bench) -> None:
    """RLIMIT_MSGQUEUE is 0, so none can be made; and each call has an ipc namespace in which there is none."""
    queue = (
        _LIBC
        + _REFUSED
        + """
made = said(libc.mq_open(b"/left", os.O_CREAT | os.O_RDWR, 0o666, None))
result = [made, said(libc.mq_open(b"/left", os.O_RDWR)), resource.getrlimit(resource.RLIMIT_MSGQUEUE)[1]]
result += [said(libc.shm_open(b"/left", os.O_CREAT | os.O_RDWR, 0o666))]
"""
    )
    spec = shared.spec()
    async with shared.holding(queue, spec=spec):
        # The last is the control: what is made in the call's own /dev/shm can be.
        assert await shared.run(queue, spec=spec) == ["EMFILE", "ENOENT", 0, "done"]


async def test_call_can_not_watch_what_a_call_beside_it_does_with_files(shared: Bench) -> None:
    watch = (
        _LIBC
        + """
import struct
watch = libc.inotify_init1(0o4000)
refused = os.strerror(ctypes.get_errno()) if watch < 0 else ""
if watch >= 0:
    assert libc.inotify_add_watch(watch, b"/usr/bin/env", 0x20) >= 0  # IN_OPEN
    open("/usr/bin/env", "rb").close()
number = {"x86_64": (253, 300), "aarch64": (None, 262)}[os.uname().machine]
older = libc.syscall(number[0]) if number[0] else -1
whole = libc.syscall(number[1], 0, 0)  # fanotify_init
result = [refused, struct.unpack("iIII", os.read(watch, 16))[1] if watch >= 0 else 0, older < 0, whole < 0]
"""
    )
    assert await shared.run(watch) == ["Function not implemented", 0, True, True]
    kept = shared.spec(isolation=Isolation.PROCESS)
    assert await shared.run(watch, spec=kept) == ["", 0x20, os.uname().machine != "x86_64", True], (
        "control: a process that serves many may"
    )


async def test_locks_of_a_call_beside_are_not_listed(shared: Bench) -> None:
    lock = "import fcntl; mine = open('/tmp/locked', 'w'); fcntl.lockf(mine, fcntl.LOCK_EX)"
    look = "result = open('/proc/locks').read()"
    async with shared.holding(lock):
        assert await shared.run(f"{lock}\n{look}") == ""
        assert await shared.run("result = open('/proc/stat').read()[:3]") == "cpu", "control: other files are read"


async def test_processes_of_a_call_beside_can_not_be_signalled_or_read(shared: Bench) -> None:
    look = """
    import os
    own = int(os.readlink("/proc/self"))
    seen = []
    for pid in range(1, 400):
        for name in ("comm", "status", "cmdline", "environ", "maps", "mem", "root", "cwd"):
            if pid != own and os.path.lexists(f"/proc/{pid}/{name}"):
                seen.append((pid, name))
    reached = []
    for pid in (*range(2, 400), -1, 0):
        try:
            os.kill(pid, 0)
            reached.append(pid)
        except OSError:
            pass
    result = [seen, reached, own > 1]
    """
    async with shared.holding("import subprocess; subprocess.Popen(['sleep', '30'])"):
        # 0 stands for the own process group, -1 for everybody but pid 1, which is the call itself.
        assert await shared.run(look) == [[], [0], True]
        below = "import subprocess, os; pid = subprocess.Popen(['sleep', '5']).pid; os.kill(pid, 0); result = True"
        assert await shared.run(below) is True, "control: what a call started, it can signal"
