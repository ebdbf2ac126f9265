"""`fumehood mcp` as a process whose pipes the test holds, without an SDK."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from .support import BOUND_S, START

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def stdio_process(*arguments: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """`fumehood mcp ARGUMENTS`; it is killed, where it has not ended, when the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "fumehood_server", "mcp", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        **options,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def send(process: subprocess.Popen[bytes], *messages: dict[str, Any]) -> None:
    """Write the messages."""
    assert process.stdin is not None
    process.stdin.write("".join(json.dumps(each) + "\n" for each in messages).encode())


def receive(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The next message."""
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def begin(process: subprocess.Popen[bytes]) -> None:
    """Have it serve: the handshake."""
    send(process, START)
    assert receive(process)["result"]["serverInfo"]["name"] == "fumehood"


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """The exit status once it has ended, and what it wrote to stderr."""
    status = process.wait(BOUND_S)
    assert process.stderr is not None
    return status, process.stderr.read().decode()
