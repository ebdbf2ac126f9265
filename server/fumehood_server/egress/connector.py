"""Connects to a host and port: host rules, one DNS look-up, address rules, then the dial.

Both `ctx.http` and the relay connect through here and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fumehood_server.egress.access import Access
from fumehood_server.egress.addresses import IPAddress, why_not_public
from fumehood_server.egress.errors import EgressError, EgressFailedError, EgressRefusedError, Reason
from fumehood_server.egress.hostname import Host
from fumehood_server.egress.own_listeners import OwnListeners
from fumehood_server.egress.private import private_address
from fumehood_server.egress.resolver import Resolver
from fumehood_server.egress.stream import Dialler, Stream

_MAX_DIALLED = 3
"""Addresses of one name that are tried, in the resolver's order."""


class Connector:
    """Checks and dials. A name is looked up once, and the addresses that were checked are those that are dialled."""

    def __init__(self, resolver: Resolver, dialler: Dialler, own: OwnListeners | None = None) -> None:
        """Use these, and never dial `own`."""
        self._resolver = resolver
        self._dialler = dialler
        self._own = own or OwnListeners()

    async def connect(
        self,
        host: Host,
        port: int,
        access: Access,
        *,
        owner: str,
        tls: bool,
        on_dial: Callable[[IPAddress], None],
    ) -> Stream:
        """Connect to a host if the access allows it. `on_dial` is called with each address just before it is dialled.

        In order: deny and grant by name, one look-up; of every answer denial, publicness and whether the sidecar itself
        listens there; dialling.

        Raises:
            EgressRefusedError: a rule forbids it; nothing was dialled.
            EgressFailedError: it was allowed and did not work out.
        """
        access.hosts.check_host(host, port)
        addresses = (host.address,) if host.address else await self._look_up(host, access, owner)
        for address in addresses:
            _check_address(host, address, port, access)
            if self._own.takes(address, port):
                problem = f"{host}:{port} is at {address}, where the sidecar itself listens"
                raise EgressRefusedError(Reason.ADDRESS_OWN, problem)
        failure: EgressError | None = None
        for address in addresses[:_MAX_DIALLED]:
            on_dial(address)
            try:
                async with asyncio.timeout(access.limits.connect_timeout_s):
                    return await self._dialler.dial(address, port, tls_name=host.name if tls else None)
            except TimeoutError:
                failure = EgressFailedError(Reason.CONNECT_FAILED, f"{address} port {port} did not answer in time")
            except EgressFailedError as error:
                if error.reason is not Reason.CONNECT_FAILED:
                    raise
                failure = error
        raise failure or EgressFailedError(Reason.NAME_NOT_RESOLVED, f'the name "{host}" has no address')

    async def _look_up(self, host: Host, access: Access, owner: str) -> tuple[IPAddress, ...]:
        return await self._resolver.resolve(host.name, owner=owner, timeout_s=access.limits.connect_timeout_s)


def _check_address(host: Host, address: IPAddress, port: int, access: Access) -> None:
    if access.hosts.denies_address(address, port):
        raise EgressRefusedError(Reason.ADDRESS_DENIED, f"{host} is at {address}, which the operator denies")
    what = why_not_public(address)
    needed = private_address(host, address)
    if what and needed not in access.private:
        raise EgressRefusedError(
            Reason.ADDRESS_NOT_PUBLIC,
            f'{host} is at {address}, which is {what}: the operator can add "{needed}" to the plugin\'s allow_private',
        )
