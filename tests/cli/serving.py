"""Commands that go on, such as `fumehood serve`, and the plugin that they serve."""

from __future__ import annotations

import queue
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import preloaded
from tests.cli.command import COMMAND, TIMEOUT_S, environment

CODE = """
    from fumehood_sdk import Plugin
    plugin = Plugin("small", version="1.0.0")

    @plugin.tool(side_effects="none")
    def echo(text: str) -> str:
        \"\"\"Give a text back.\"\"\"
        print("echoing")
        return text
"""


class Running:
    """A command that goes on, and the lines that it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.seen: list[str] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def wait_for(self, pattern: str) -> str:
        """The first line from now on in which the pattern is found."""
        while True:
            try:
                line = self._lines.get(timeout=TIMEOUT_S)
            except queue.Empty:
                raise AssertionError(f"no line with {pattern!r}; so far: {self.seen}") from None
            if line is None:
                raise AssertionError(f"it ended without a line with {pattern!r}: {self.seen}")
            self.seen.append(line)
            if re.search(pattern, line):
                return line

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        status = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        return status


@contextmanager
def running(*arguments: str | Path, folder: Path, more: dict[str, str] | None = None) -> Iterator[Running]:
    with preloaded.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=folder,
        env=environment(more={"PYTHONUNBUFFERED": "1", **(more or {})}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        command = Running(process)
        try:
            yield command
        finally:
            if process.poll() is None:
                command.end()
