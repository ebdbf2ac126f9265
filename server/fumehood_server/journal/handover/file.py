"""A file that checkpoints are appended to, one signed note after the other."""

from __future__ import annotations

import os
from pathlib import Path

from fumehood_server.journal.handover.place import PlaceError


class FilePlace:
    """Appends and syncs, so that the file can be one that only grows (chattr +a), or lie on another machine's disk."""

    def __init__(self, path: Path) -> None:
        """It is made where it is missing, its folder is not."""
        self.name = f"the file {path}"
        self._path = path

    def take(self, note: str) -> None:
        """See `Place`."""
        data = memoryview(note.encode())
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                while data:
                    data = data[os.write(descriptor, data) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as exc:
            raise PlaceError(exc.strerror or str(exc)) from exc
