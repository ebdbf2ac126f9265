"""Plugins served from their authors' folders, for `fumehood plugin dev` alone: what is saved is what runs."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fumehood_server.errors import PluginInvalidError
from fumehood_server.plugins.store.copies import CopyDamagedError
from fumehood_server.plugins.store.digest import folder_digest
from fumehood_server.plugins.store.interface import Stored


class LiveFolders:
    """No copies (`PluginSources`). A folder that changed since it was read takes no new worker until it is reloaded."""

    def __init__(self) -> None:
        """Empty."""
        self._folders: dict[str, Path] = {}

    def put(self, folder: Path) -> Stored:
        """See `PluginSources`."""
        path = folder.resolve()
        digest = folder_digest(path)
        self._folders[digest] = path
        return Stored(digest, path)

    def verify(self, digest: str) -> None:
        """See `PluginSources`."""
        folder = self._folders[digest]
        try:
            found = folder_digest(folder)
        except PluginInvalidError as exc:
            raise CopyDamagedError(str(exc)) from exc
        if found != digest:
            raise CopyDamagedError(f"{folder} is not as it was read")

    def collect(self, keep: Collection[str]) -> tuple[str, ...]:  # noqa: ARG002 - as `PluginSources` has it
        """Nothing is kept."""
        return ()

    def close(self) -> None:
        """Nothing is held."""
