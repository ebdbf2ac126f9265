"""DNS look-up by getaddrinfo(3), in threads of which each plugin has its own."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import socket
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Protocol

from fumehood_server.egress.addresses import IPAddress
from fumehood_server.egress.errors import EgressFailedError, EgressRefusedError, Reason

_LOOKUPS_OF_ONE = 2
"""At once for one plugin. Each holds a thread until the system's resolver gives up, however long that takes."""
_WAITING_OF_ONE = 64
"""Look-ups of one plugin that wait for those two. More are refused at once."""


class Resolver(Protocol):
    """Finds the addresses of names."""

    async def resolve(self, name: str, *, owner: str, timeout_s: float) -> tuple[IPAddress, ...]:
        """All addresses of a canonical name, best first, at least one. `owner` is the plugin that it is for.

        Raises:
            EgressFailedError: `NAME_NOT_RESOLVED`: also when no answer has come within `timeout_s`.
            EgressRefusedError: `TOO_MANY_LOOKUPS`: by then other look-ups of the plugin had not ended.
        """


@dataclass(slots=True)
class _Owner:
    """The look-ups of one plugin."""

    free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_LOOKUPS_OF_ONE))
    waiting: int = 0


class SystemResolver:
    """A `Resolver` by getaddrinfo(3): the hosts file, DNS, whatever the machine is set up for.

    The threads are not those of the event loop, which has four for all: two names that nobody answers for would stop
    the look-ups of every other plugin. Ours are as many as two for each plugin, and hold nobody up when we exit.
    """

    def __init__(self, lookup: Callable[[str], list[str]] | None = None) -> None:
        """Nothing is looked up yet. `lookup` takes the place of getaddrinfo(3), in a thread of its own."""
        self._lookup = lookup or _getaddrinfo
        self._owners: defaultdict[str, _Owner] = defaultdict(_Owner)  # by plugin: bounded by the configuration

    async def resolve(self, name: str, *, owner: str, timeout_s: float) -> tuple[IPAddress, ...]:
        """See `Resolver`."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        ours = self._owners[owner]
        if ours.waiting >= _WAITING_OF_ONE:
            raise _too_many_lookups()
        ours.waiting += 1
        try:
            async with asyncio.timeout_at(deadline_s):
                await ours.free.acquire()
        except TimeoutError:
            raise _too_many_lookups() from None
        finally:
            ours.waiting -= 1
        answer = self._begin(name, ours)
        try:
            async with asyncio.timeout_at(deadline_s):
                return tuple(dict.fromkeys(map(ip_address, await answer)))
        except TimeoutError:
            raise EgressFailedError(Reason.NAME_NOT_RESOLVED, f'the look-up of "{name}" took too long') from None
        except (OSError, UnicodeError) as error:
            raise EgressFailedError(Reason.NAME_NOT_RESOLVED, f'the name "{name}" has no address: {error}') from error

    def _begin(self, name: str, ours: _Owner) -> asyncio.Future[list[str]]:
        """Look a name up in a thread, which can't be stopped: the place is free when it ends, whoever waits or not."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[str]] = loop.create_future()

        def end(found: list[str], error: OSError | UnicodeError | None) -> None:
            ours.free.release()
            if answer.cancelled():
                return
            if error is None:
                answer.set_result(found)
            else:
                answer.set_exception(error)

        def run() -> None:
            found, error = list[str](), None
            try:
                found = self._lookup(name)
            except (OSError, UnicodeError) as problem:
                error = problem
            with contextlib.suppress(RuntimeError):  # the loop is closed: the sidecar exits
                loop.call_soon_threadsafe(end, found, error)

        try:
            # threading.Thread.start waits until the thread runs, which it does once others let go of the interpreter.
            _thread.start_new_thread(run, ())
        except RuntimeError as error:  # the machine has no more threads
            ours.free.release()
            raise EgressFailedError(Reason.NAME_NOT_RESOLVED, f'"{name}" can\'t be looked up: {error}') from error
        return answer


def _too_many_lookups() -> EgressRefusedError:
    return EgressRefusedError(
        Reason.TOO_MANY_LOOKUPS, f"{_LOOKUPS_OF_ONE} look-ups of this plugin have not ended: wait for them"
    )


def _getaddrinfo(name: str) -> list[str]:
    return [str(each[4][0]) for each in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
