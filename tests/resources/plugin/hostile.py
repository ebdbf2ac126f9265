"""Takes as much of each thing as it is told to, by the SDK and without catching anything."""

import contextlib
import hashlib
import mmap
import os
import signal
import sys
import threading
import time

from fumehood_sdk import Plugin, ToolError

plugin = Plugin("hostile", version="1.0.0")
MIB = 1 << 20
signal.signal(signal.SIGTERM, signal.SIG_IGN)


@plugin.tool(side_effects="none")
def echo(text: str) -> str:
    """Say it again."""
    return text


@plugin.tool(side_effects="none")
def fork(count: int) -> int:
    """Have so many children at a time."""
    children = []
    try:
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                signal.pause()
            children.append(pid)
        return len(children)
    finally:
        if len(children) == count:
            for pid in children:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


@plugin.tool(side_effects="none")
def fork_and_shrug(count: int) -> int:
    """Have so many children, and fail in words of one's own."""
    try:
        return fork(count)
    except OSError as error:
        raise ToolError("it did not go well", reason="sorry") from error


@plugin.tool(side_effects="none")
def threads(count: int) -> int:
    """Have so many threads at a time."""
    go_on = threading.Event()
    started = []
    try:
        for _ in range(count):
            thread = threading.Thread(target=go_on.wait, daemon=True)
            thread.start()
            started.append(thread)
    finally:
        go_on.set()
    return len(started)


@plugin.tool(side_effects="none")
def hold(mib: int) -> int:
    """Hold memory."""
    held = [bytearray(b"x" * MIB) for _ in range(mib)]
    return len(held)


@plugin.tool(side_effects="none")
def reserve(mib: int) -> int:
    """Reserve address space, as Node and Go do: none of it may be touched, so that the machine may have less memory."""
    return len(mmap.mmap(-1, mib * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)) // MIB


@plugin.tool(side_effects="none")
def hold_in_children(mib: int, children: int) -> int:
    """Hold memory in several processes."""
    read, write = os.pipe()
    pids = []
    for _ in range(children):
        pid = os.fork()
        if pid == 0:
            held = bytearray(b"x" * mib * MIB)
            os.write(write, b"x")
            while held:
                signal.pause()
        pids.append(pid)
    os.close(write)
    got = 0
    while got < children and os.read(read, 1):
        got += 1
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return got


@plugin.tool(side_effects="none")
def memfd(mib: int, files: int) -> int:
    """Hold files in memory, not mapped."""
    fds = [os.memfd_create(f"m{number}") for number in range(files)]
    for fd in fds:
        for _ in range(mib):
            os.write(fd, bytes(MIB))
    time.sleep(0.4)
    for fd in fds:
        os.close(fd)
    return len(fds)


@plugin.tool(side_effects="none")
def fill(mib: int, folder: str = "/tmp") -> int:
    """Fill a scratch folder."""
    for number in range(mib):
        with open(f"{folder}/{number}", "wb") as file:
            file.write(bytes(MIB))
    for number in range(mib):
        os.unlink(f"{folder}/{number}")
    return mib


@plugin.tool(side_effects="none")
def make_files(count: int) -> int:
    """Make as many empty files in scratch."""
    for number in range(count):
        with open(f"/tmp/empty {number}", "wb"):
            pass
    for number in range(count):
        os.unlink(f"/tmp/empty {number}")
    return count


@plugin.tool(side_effects="none")
def big_file(mib: int) -> int:
    """Write one file."""
    with open("/tmp/big", "wb", buffering=0) as file:
        file.writelines(bytes(MIB) for _ in range(mib))
    os.unlink("/tmp/big")
    return mib


@plugin.tool(side_effects="none")
def open_files(count: int) -> int:
    """Open so many files."""
    return len([open("/dev/null", "rb") for _ in range(count)])


@plugin.tool(side_effects="none")
def spin(seconds: float, threads: int = 1) -> float:
    """Use processor time."""

    def use() -> None:
        begun = time.thread_time()
        while time.thread_time() - begun < seconds:
            hashlib.pbkdf2_hmac("sha256", b"x", b"y", 20000)  # lets other threads run meanwhile

    workers = [threading.Thread(target=use, daemon=True) for _ in range(threads - 1)]
    for worker in workers:
        worker.start()
    use()
    for worker in workers:
        worker.join()
    return seconds * threads


def _use(seconds: float, rest: float) -> None:
    time.sleep(rest)
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 20000)


@plugin.tool(side_effects="none")
def leave(how: str, seconds: float, rest: float = 0.0) -> str:
    """Return, and go on using processor time: by a thread, a child, or a child that a thread starts after a rest."""

    def start_child() -> None:
        time.sleep(rest)
        if os.fork() == 0:
            _use(seconds, 0)
            signal.pause()

    if how == "child":
        start_child()
    else:
        left = {"thread": _use, "late child": lambda *_: start_child()}[how]
        threading.Thread(target=left, args=(seconds, rest), daemon=True).start()
    return how


@plugin.tool(side_effects="none")
def wait_for_child(seconds: float) -> str:
    """Start a child that ends by itself, and wait for that."""
    child = os.fork()
    if child == 0:
        time.sleep(seconds)
        os._exit(7)
    _, status = os.waitpid(child, 0)
    return "its child has ended by itself" if os.waitstatus_to_exitcode(status) == 7 else "its child was killed"


@plugin.tool(side_effects="none")
def output(size: int) -> str:
    """Return much."""
    return "x" * size


@plugin.tool(side_effects="none")
def flood(size: int) -> int:
    """Print much without ever ending a line."""
    for _ in range(size // 1024):
        sys.stdout.write("x" * 1024)
    sys.stdout.flush()
    return size


@plugin.tool(side_effects="none")
def refuse_to_end(token: str) -> str:
    """Start a child that left its session, and ignore everything that asks for the end."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", "while True: pass", token])
        os._exit(0)
    os.wait()
    sys.stderr.write(f"started {token}\n")
    sys.stderr.flush()
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(60)
