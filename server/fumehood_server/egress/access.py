"""Egress access of one tool: methods, host rules, private addresses and caps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fumehood_sandbox import Level

from fumehood_server.egress.errors import EgressRefusedError, Reason
from fumehood_server.egress.hosts import HostRules, parse_denied, parse_granted
from fumehood_server.egress.private import PrivateAddress, parse_private

READ_METHODS = frozenset({"GET", "HEAD"})
ALL_METHODS = READ_METHODS | {"POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
"""TRACE gives back what was sent, credentials included; CONNECT is the relay's alone."""
_Number = TypeVar("_Number", int, float)
_METHODS = {
    Level.NONE: frozenset[str](),
    Level.READ: READ_METHODS,
    Level.WRITE: READ_METHODS,
    Level.EXTERNAL: ALL_METHODS,
}


@dataclass(frozen=True, slots=True)
class EgressLimits:
    """Caps. The operator's are given with the access; a request may only lower those that it names."""

    timeout_s: float = 30.0
    """From the request to the last byte of the last body, with look-ups, redirects and the time that the plugin takes
    to read."""
    connect_timeout_s: float = 10.0
    """For one address to answer, TLS included. Also what a look-up may take."""
    max_request_bytes: int = 4 * 1024 * 1024
    max_response_bytes: int = 16 * 1024 * 1024
    """Body after decoding."""
    max_received_bytes: int = 32 * 1024 * 1024
    """All that is read from sockets, heads and encodings and every hop included."""
    max_head_bytes: int = 64 * 1024
    """Of the head of a request, and of a response."""
    max_redirects: int = 10
    max_requests_per_s: float = 200.0
    """Of one plugin, through the relay as well; as many may come at once. More wait."""
    tunnel_timeout_s: float = 300.0
    """One CONNECT through the relay, from its first byte to its last."""
    max_tunnel_bytes: int = 64 * 1024 * 1024
    """One CONNECT through the relay, both directions together."""

    def lowered(
        self, *, timeout_s: float | None = None, max_response_bytes: int | None = None, max_redirects: int | None = None
    ) -> EgressLimits:
        """These, with what is given and lower. None changes nothing; less than nothing is taken as nothing."""
        return replace(
            self,
            timeout_s=_least(self.timeout_s, timeout_s),
            max_response_bytes=_least(self.max_response_bytes, max_response_bytes),
            max_redirects=_least(self.max_redirects, max_redirects),
        )


def _least(cap: _Number, wish: _Number | None) -> _Number:
    return cap if wish is None else max(0, min(cap, wish))  # a NaN compares as false and leaves the cap


@dataclass(frozen=True, slots=True)
class Access:
    """What one tool may do with the network. Made once for each set of grants, by `access_for`.

    `private` holds the exact addresses that may be dialled although they are not public, each for the host that it is
    given for; they still need a grant by host and port. `tunnels` allows CONNECT through the relay.
    """

    methods: frozenset[str] = frozenset()
    hosts: HostRules = field(default_factory=HostRules)
    private: frozenset[PrivateAddress] = frozenset()
    limits: EgressLimits = field(default_factory=EgressLimits)
    tunnels: bool = False

    def check_method(self, method: str) -> None:
        """Judge a method.

        Raises:
            EgressRefusedError: `METHOD_NOT_ALLOWED`.
        """
        if method not in self.methods:
            allowed = ", ".join(sorted(self.methods)) or "none"
            raise EgressRefusedError(
                Reason.METHOD_NOT_ALLOWED,
                f'the method "{method[:32]}" is not allowed at this level; allowed: {allowed}',
            )


def access_for(
    level: Level,
    *,
    hosts: Iterable[str] = (),
    deny_hosts: Iterable[str] = (),
    allow_private: Iterable[str] = (),
    limits: EgressLimits | None = None,
) -> Access:
    """What a tool of that level may do with these grants, as an operator writes them.

    Raises:
        HostEntryError: an entry is malformed.
    """
    return Access(
        methods=_METHODS[level],
        hosts=HostRules(frozenset(map(parse_granted, hosts)), frozenset(map(parse_denied, deny_hosts))),
        private=frozenset(map(parse_private, allow_private)),
        limits=limits or EgressLimits(),
        tunnels=level is Level.EXTERNAL,
    )
