"""Redaction of what the journal keeps of calls: values of the secrets that a plugin may read, in any usual form."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from fumehood_server.secrets import Redactor, SecretStore, SecretUnavailableError
from fumehood_server.secrets.redactor import MAX_VALUES

_Secret = tuple[str, bytes]
"""Its name and a value that it had."""


class PayloadRedaction:
    """The redactor of each plugin, for what is recorded.

    It is not that of the plugin's log, which redacts what callers get as well: only of secrets that the plugin was
    handed. Here a secret counts that it may read and never asked for.
    """

    def __init__(self) -> None:
        """Know no value yet."""
        self._known: dict[str, tuple[tuple[_Secret, ...], Redactor]] = {}

    async def redactor(self, store: SecretStore, plugin: str, names: Sequence[str]) -> Redactor:
        """One that knows these secrets as they are now, and the values before."""
        values = await _read(store, names)
        known, redactor = self._known.get(plugin, ((), Redactor()))
        if all(each in known for each in values):
            return redactor
        every = [*(each for each in known if each not in values), *values]
        kept = tuple(each for at, each in enumerate(every) if _later(every[at + 1 :], each[0]) < MAX_VALUES)
        redactor = await asyncio.to_thread(_learnt, kept)
        self._known[plugin] = (kept, redactor)
        return redactor


async def _read(store: SecretStore, names: Sequence[str]) -> list[_Secret]:
    found = []
    for name in names:
        with contextlib.suppress(SecretUnavailableError):  # nobody can have it now
            found.append((name, await store.read_secret(name)))
    return found


def _later(values: Sequence[_Secret], name: str) -> int:
    return sum(each[0] == name for each in values)


def _learnt(values: Sequence[_Secret]) -> Redactor:
    redactor = Redactor()
    for name, value in values:
        redactor.learn(name, value)
    return redactor
