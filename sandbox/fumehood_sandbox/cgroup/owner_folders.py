"""A folder for each owner of leaves, so that an owner's share of the processors doesn't grow with its processes.

The kernel shares a processor among the folders of one level. With all leaves on one level, a plugin that runs 40 calls
has 40 shares, and who waits for another plugin's answer has one.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable

from fumehood_sandbox.cgroup.names import new_name


class OwnerFolders:
    """The folders of one parent. Each is made for its owner's first leaf and kept until `remove`."""

    def __init__(self, parent: str, prepare: Callable[[str], None]) -> None:
        """`prepare` is given each folder that was made."""
        self._parent = parent
        self._prepare = prepare
        self._folders: dict[str, str] = {}
        self._lock = threading.Lock()

    def folder(self, owner: str) -> str:
        """The owner's, made anew where somebody has removed it.

        Raises:
            OSError: it can't be made. Nothing of it is left.
        """
        with self._lock:
            found = self._folders.get(owner)
            if found is None or not os.path.isdir(found):  # noqa: PTH112 - plain text paths here
                found = f"{self._parent}/{new_name()}"
                os.mkdir(found)  # noqa: PTH102 - likewise
                try:
                    self._prepare(found)
                except BaseException:
                    os.rmdir(found)  # noqa: PTH106 - likewise
                    raise
                self._folders[owner] = found
            return found

    def remove(self) -> None:
        """Remove those in which no leaf is. Idempotent."""
        with self._lock:
            for owner, folder in tuple(self._folders.items()):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)  # noqa: PTH106 - likewise
                    del self._folders[owner]
