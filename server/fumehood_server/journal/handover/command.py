"""A command of the operator's that is given each checkpoint on its standard input."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from fumehood_server.journal.handover.place import PlaceError

TIMEOUT_S = 30.0
_ENVIRONMENT = ("PATH", "HOME", "LANG")
_SAID_CHARS = 200


class CommandPlace:
    """Runs the command in a process group of its own. Exit status 0: it has the checkpoint."""

    def __init__(self, command: Sequence[str], folder: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        """`folder` is its working directory. Of the sidecar's environment it gets PATH, HOME and LANG."""
        self.name = f"the command {command[0]}"
        self._command = list(command)
        self._folder = folder
        self._timeout_s = timeout_s

    def take(self, note: str) -> None:
        """See `Place`."""
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=self._folder,
                env=environment,
                process_group=0,
            )
        except OSError as exc:
            raise PlaceError(f"it can't be run: {exc.strerror or exc}") from exc
        try:
            _, said = process.communicate(note.encode(), self._timeout_s)
        except subprocess.TimeoutExpired as exc:
            raise PlaceError(f"it took longer than {self._timeout_s:g} s") from exc
        finally:
            # Its group, also where it ended and left something behind that holds its stderr.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stderr):
                if stream is not None:
                    stream.close()
        if process.returncode:
            last = said.decode(errors="replace").strip()[-_SAID_CHARS:]
            raise PlaceError(f"it ended with status {process.returncode}" + (f": {last}" if last else ""))
