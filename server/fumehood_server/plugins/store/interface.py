"""Interface of what plugins are run from: the store of copies, or for `plugin dev` the folders themselves."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Stored:
    """A plugin's files as they were read."""

    digest: str
    path: Path
    """Where they lie: what workers are shown."""


class PluginSources(Protocol):
    """Where plugins are run from. Every method blocks: call it in a thread. Thread-safe."""

    def put(self, folder: Path) -> Stored:
        """Read a plugin's folder. What is returned is kept until `collect` is called without its digest.

        Raises:
            PluginInvalidError: as `opened_tree`.
            ConfigError: there is no place for it.
        """

    def verify(self, digest: str) -> None:
        """Compare what lies there with what was read.

        Raises:
            CopyDamagedError: it is not the same.
        """

    def collect(self, keep: Collection[str]) -> tuple[str, ...]:
        """Remove what nobody runs but for these digests. Returns what was removed."""

    def close(self) -> None:
        """Let go of everything. Idempotent."""
