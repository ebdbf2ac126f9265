"""`[egress]` and lists of granted hosts, converted to the egress broker's types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address

from fumehood_server.config.config_file import EgressTable
from fumehood_server.config.toml_source import Key, TomlSource
from fumehood_server.egress import (
    EgressLimits,
    HostEntry,
    HostEntryError,
    parse_denied,
    parse_granted,
)

_HEADS_BYTES = 1024 * 1024
"""Heads of a request's hops: room for eleven of the largest, and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressConfig:
    """`[egress]`: caps of all requests, and the private addresses that may be reached."""

    limits: EgressLimits = field(default_factory=EgressLimits)
    private: tuple[IPv4Address | IPv6Address, ...] = ()


def read_egress(table: EgressTable, source: TomlSource) -> EgressConfig:
    """`[egress]` as the broker's limits and addresses.

    Raises:
        ConfigError: an entry of `allow_private` is not an IP address.
    """
    private = []
    for index, text in enumerate(table.allow_private):
        try:
            address = ip_address(text)
        except ValueError:
            problem = f'"{text[:80]}" is not one IP address'
            hint = "each address by itself, such as 10.0.0.7: no ranges, ports or names"
            raise source.problem(("egress", "allow_private", index), problem, hint) from None
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            problem = f'"{text}" names an interface of this machine'
            raise source.problem(("egress", "allow_private", index), problem, "leave out what comes after %")
        private.append(address)
    limits = EgressLimits(
        timeout_s=table.timeout_s,
        connect_timeout_s=min(table.connect_timeout_s, table.timeout_s),
        max_request_bytes=table.max_request_bytes,
        max_response_bytes=table.max_response_bytes,
        # Twice the decoded body: heads, redirects, and encodings that make a body longer.
        max_received_bytes=2 * table.max_response_bytes + _HEADS_BYTES,
        max_redirects=table.max_redirects,
        tunnel_timeout_s=table.tunnel_timeout_s,
        max_tunnel_bytes=table.max_tunnel_bytes,
    )
    return EgressConfig(limits=limits, private=tuple(private))


def read_granted(texts: Sequence[str], key: Key, source: TomlSource) -> tuple[str, ...]:
    """Entries of `hosts` in canonical form, sorted and each once.

    Raises:
        ConfigError: one is malformed.
    """
    return _read_hosts(texts, key, source, parse_granted)


def read_denied(texts: Sequence[str], key: Key, source: TomlSource) -> tuple[str, ...]:
    """Entries of `deny_hosts` in canonical form, sorted and each once.

    Raises:
        ConfigError: one is malformed.
    """
    return _read_hosts(texts, key, source, parse_denied)


def _read_hosts(
    texts: Sequence[str], key: Key, source: TomlSource, parse: Callable[[str], HostEntry]
) -> tuple[str, ...]:
    found = set()
    for index, text in enumerate(texts):
        try:
            found.add(str(parse(text)))
        except HostEntryError as exc:
            problem = f'`{key[-1]}`: "{text[:80]}" {exc.problem}'
            raise source.problem((*key, index), problem, "write NAME:PORT, such as api.example.com:443") from exc
    return tuple(sorted(found))
