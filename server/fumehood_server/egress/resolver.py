"""DNS look-up by getaddrinfo(3), with caps on concurrent look-ups in all and of one plugin."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Protocol

from fumehood_server.egress.addresses import IPAddress
from fumehood_server.egress.errors import EgressFailedError, Reason

_LOOKUPS = 4
"""At once. A look-up holds a thread until the system's resolver gives up, and the loop has four for them."""
_LOOKUPS_OF_ONE = 2
"""At once for one plugin, so that one whose names never answer does not stop the others."""


class Resolver(Protocol):
    """Finds the addresses of names."""

    async def resolve(self, name: str, *, owner: str) -> tuple[IPAddress, ...]:
        """All addresses of a canonical name, best first, at least one.

        The caller bounds the wait by cancelling. `owner` is the plugin that it is for.

        Raises:
            EgressFailedError: `NAME_NOT_RESOLVED`.
        """


class SystemResolver:
    """A `Resolver` by getaddrinfo(3): the hosts file, DNS, whatever the machine is set up for."""

    def __init__(self, lookup: Callable[[str], Awaitable[list[str]]] | None = None) -> None:
        """Nothing is looked up yet. `lookup` takes the place of getaddrinfo(3)."""
        self._lookup = lookup or _getaddrinfo
        self._free = asyncio.Condition()
        self._running: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def resolve(self, name: str, *, owner: str) -> tuple[IPAddress, ...]:
        """See `Resolver`."""
        async with self._free:
            await self._free.wait_for(
                lambda: self._running.total() < _LOOKUPS and self._running[owner] < _LOOKUPS_OF_ONE
            )
            self._running[owner] += 1
        # The thread can't be stopped: a cancelled wait returns at once, but the slot is free only when the thread ends.
        answer: asyncio.Future[tuple[IPAddress, ...] | OSError | UnicodeError]
        answer = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._look_up(name, owner, answer), name=f"egress look-up of {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        found = await answer
        if isinstance(found, tuple):
            return found
        raise EgressFailedError(Reason.NAME_NOT_RESOLVED, f'the name "{name}" has no address: {found}') from found

    async def _look_up(
        self, name: str, owner: str, answer: asyncio.Future[tuple[IPAddress, ...] | OSError | UnicodeError]
    ) -> None:
        result: tuple[IPAddress, ...] | OSError | UnicodeError = OSError("the look-up was given up")
        try:
            result = tuple(dict.fromkeys(map(ip_address, await self._lookup(name))))
        except (OSError, UnicodeError) as error:
            result = error
        finally:
            if not answer.done():
                answer.set_result(result)
            self._running[owner] -= 1
            self._running += Counter()  # drops what is zero
            async with self._free:
                self._free.notify_all()


async def _getaddrinfo(name: str) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(each[4][0]) for each in found]
