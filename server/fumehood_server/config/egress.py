"""`[egress]` and lists of granted hosts, converted to the egress broker's types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fumehood_server.config.config_file import EgressTable
from fumehood_server.config.toml_source import Key, TomlSource
from fumehood_server.egress import (
    EgressLimits,
    HostEntryError,
    parse_denied,
    parse_granted,
    parse_private,
)

_HEADS_BYTES = 1024 * 1024
"""Heads of a request's hops: room for eleven of the largest, and more."""
_HOST_HINT = "write NAME:PORT, such as api.example.com:443"


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressConfig:
    """`[egress]`: caps of all requests, and private addresses for requests that name the address itself."""

    limits: EgressLimits = field(default_factory=EgressLimits)
    private: tuple[str, ...] = ()
    """In canonical form: addresses alone, for every plugin that is granted one as such."""


def read_egress(table: EgressTable, source: TomlSource) -> EgressConfig:
    """`[egress]` as the broker's limits and addresses.

    Raises:
        ConfigError: an entry of `allow_private` is malformed.
    """
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
    private = read_private(table.allow_private, ("egress", "allow_private"), source)
    for index, text in enumerate(table.allow_private):
        if "=" in text:
            problem = f'"{text[:80]}" is for one name, and [egress] is for all plugins'
            raise source.problem(("egress", "allow_private", index), problem, "move it to the [[plugin]] that needs it")
    return EgressConfig(limits=limits, private=private)


def read_private(texts: Sequence[str], key: Key, source: TomlSource) -> tuple[str, ...]:
    """Entries of `allow_private` in canonical form, sorted and each once.

    Raises:
        ConfigError: one is malformed.
    """
    return _read_entries(texts, key, source, parse_private, "ADDRESS or NAME=ADDRESS, one each: no ranges, no ports")


def read_granted(texts: Sequence[str], key: Key, source: TomlSource) -> tuple[str, ...]:
    """Entries of `hosts` in canonical form, sorted and each once.

    Raises:
        ConfigError: one is malformed.
    """
    return _read_entries(texts, key, source, parse_granted, _HOST_HINT)


def read_denied(texts: Sequence[str], key: Key, source: TomlSource) -> tuple[str, ...]:
    """Entries of `deny_hosts` in canonical form, sorted and each once.

    Raises:
        ConfigError: one is malformed.
    """
    return _read_entries(texts, key, source, parse_denied, _HOST_HINT)


def _read_entries(
    texts: Sequence[str], key: Key, source: TomlSource, parse: Callable[[str], object], hint: str
) -> tuple[str, ...]:
    found = set()
    for index, text in enumerate(texts):
        try:
            found.add(str(parse(text)))
        except HostEntryError as exc:
            problem = f'`{key[-1]}`: "{text[:80]}" {exc.problem}'
            raise source.problem((*key, index), problem, hint) from exc
    return tuple(sorted(found))
