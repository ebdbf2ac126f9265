"""Runs `fumehood` as a person or a script would: a process of its own."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import preloaded

TIMEOUT_S = 60.0
AGAIN_S = 5.0
"""Between two signals of a test, of which the second one is for a command that has not seen the first: longer than a
busy machine takes to end one that has."""
COMMAND = [*preloaded.PYTHON, "-m", "fumehood_server"]


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """The error object that `--json` prints on stderr."""
        shape = json.loads(self.stderr)["error"]
        assert isinstance(shape, dict)
        return shape


def environment(address: str = "", more: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("FUMEHOOD_")}
    return {**kept, **({"FUMEHOOD_ADDRESS": address} if address else {}), **(more or {})}


def fumehood(
    *arguments: str | Path,
    address: str = "",
    folder: Path | None = None,
    stdin: str | None = None,
    more: Mapping[str, str] | None = None,
) -> Done:
    status, stdout, stderr = preloaded.run(
        [*COMMAND, *map(str, arguments)],
        cwd=folder,
        env=environment(address, more),
        stdin=None if stdin is None else stdin.encode(),
        timeout=TIMEOUT_S,
    )
    # Not text=True: it makes newlines of carriage returns.
    return Done(status, stdout.decode(), stderr.decode())


def on_terminal(
    *arguments: str | Path,
    address: str = "",
    folder: Path | None = None,
    more: Mapping[str, str] | None = None,
    typed: Sequence[tuple[str, str | signal.Signals]] = (),
) -> tuple[int, str]:
    """The exit status, and what the command writes to a terminal of its own.

    `typed`: what it has to have written before a line is typed or a signal sent, and that.
    """
    waiting = list(typed)
    ours, theirs = pty.openpty()
    try:
        with preloaded.Popen(
            [*COMMAND, *map(str, arguments)],
            cwd=folder,
            env=environment(address, {"TERM": "xterm", "COLUMNS": "100", **(more or {})}),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        ) as process:
            os.close(theirs)
            theirs = -1
            written, seen = b"", 0
            last_signal: signal.Signals | None = None
            silent_until = time.monotonic() + TIMEOUT_S
            while time.monotonic() < silent_until:
                if not select.select([ours], [], [], AGAIN_S)[0]:
                    if last_signal is not None:  # one that comes right before readline waits is seen with the next
                        process.send_signal(last_signal)
                    continue
                try:
                    piece = os.read(ours, 65536)
                except OSError:  # EIO: the last holder of the other side has closed it
                    break
                written += piece
                silent_until = time.monotonic() + TIMEOUT_S
                if waiting and waiting[0][0].encode() in written[seen:]:
                    seen = len(written)
                    _, told = waiting.pop(0)
                    if isinstance(told, signal.Signals):
                        last_signal = told
                        process.send_signal(told)
                    else:
                        os.write(ours, f"{told}\n".encode())
            status = process.wait(TIMEOUT_S)
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
    return status, written.decode()
