"""Secret store: reads the configured secrets by name, with a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fumehood_server.secrets.source import SecretSource, SecretUnavailableError

READ_TIMEOUT_S = 5.0
"""A file of some bytes is read in microseconds; only one on a dead network mount takes longer."""


class SecretStore:
    """Reads secrets by name. The caller checks grants."""

    def __init__(self, sources: Mapping[str, SecretSource]) -> None:
        """`sources` is the configuration's `[secrets]`."""
        self._sources = sources

    async def read_secret(self, name: str) -> bytes:
        """The value as it is now.

        Raises:
            SecretUnavailableError: it can't be had, or not within `READ_TIMEOUT_S`.
        """
        source = self._sources.get(name)
        if source is None:
            raise SecretUnavailableError("secret_missing", f"there is no secret {name}", f"write [secrets.{name}]")
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                return await asyncio.to_thread(source.read_value)
        except TimeoutError as error:
            problem = f"the secret {name} could not be read within {READ_TIMEOUT_S:g} s"
            raise SecretUnavailableError("secret_unusable", problem, "look at the file system that it is on") from error
