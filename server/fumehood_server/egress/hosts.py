"""Host rules: allow and deny entries such as `api.example.com:443`, and how they match."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address

from fumehood_server.egress.errors import EgressRefusedError, Reason
from fumehood_server.egress.hostname import Host, canonical_host
from fumehood_server.egress.url import split_authority

_ANY_PORT = ":*"
_BENEATH = "*."


class HostEntryError(ValueError):
    """The text is no entry. The operator must mend it; `problem` says what is wrong."""

    def __init__(self, text: str, problem: str) -> None:
        """Keep the problem."""
        super().__init__(f'"{text[:80]}": {problem}')
        self.problem = problem


@dataclass(frozen=True, slots=True)
class HostEntry:
    """One entry. `str()` gives its canonical form.

    `beneath` means the names under `host`, at any depth, and not `host` itself. `port` None means every port.
    """

    host: Host
    port: int | None
    beneath: bool = False

    def __str__(self) -> str:
        return f"{_BENEATH if self.beneath else ''}{self.host}:{self.port or '*'}"

    def covers(self, host: Host, port: int) -> bool:
        """Whether the entry matches that host and port. An address is matched by the very same address alone."""
        if self.port is not None and self.port != port:
            return False
        if self.beneath:
            return host.address is None and host.name.endswith(f".{self.host.name}")
        return self.host == host

    def covers_address(self, address: IPv4Address | IPv6Address, port: int) -> bool:
        """Whether the entry was written as that address, and matches that port."""
        return self.host.address == address and self.port in {None, port}


def parse_granted(text: str) -> HostEntry:
    """Read an entry of `hosts`: `NAME:PORT`, `*.NAME:PORT`, `ADDRESS:PORT` or `[IPV6]:PORT`.

    The port is never left out. After `*.` comes a name of at least two labels. A `*.` entry means every name beneath,
    at any depth, and not the name itself.

    Raises:
        HostEntryError: the text is none of these.
    """
    entry = _parse(text)
    if entry.port is None:
        raise HostEntryError(text, "names no port: write NAME:PORT, such as api.example.com:443")
    if entry.beneath and "." not in entry.host.name:
        raise HostEntryError(text, "grants a whole top-level domain: name at least two labels after *.")
    return entry


def parse_denied(text: str) -> HostEntry:
    """Read an entry of `deny_hosts`: as for `hosts`; the port may be left out or `*`, and then means every port.

    Raises:
        HostEntryError: the text is none of these.
    """
    return _parse(text)


def _parse(text: str) -> HostEntry:
    beneath = text.startswith(_BENEATH)
    rest = text.removeprefix(_BENEATH)
    try:
        if rest.endswith(_ANY_PORT):
            host, port = canonical_host(rest.removesuffix(_ANY_PORT)), None
        else:
            host, port = split_authority(rest)
    except EgressRefusedError as error:
        raise HostEntryError(text, error.message) from error
    if beneath and host.address is not None:
        raise HostEntryError(text, "has *. before an address, which has nothing beneath it")
    return HostEntry(host, port, beneath)


@dataclass(frozen=True, slots=True)
class HostRules:
    """Allow and deny lists. Deny wins; an empty allow list means no network."""

    granted: frozenset[HostEntry] = field(default_factory=frozenset)
    denied: frozenset[HostEntry] = field(default_factory=frozenset)

    def __bool__(self) -> bool:
        """Whether anything is granted."""
        return bool(self.granted)

    def check_host(self, host: Host, port: int) -> None:
        """Judge a host and port by name.

        Raises:
            EgressRefusedError: `HOST_DENIED` or `HOST_NOT_GRANTED`.
        """
        if any(entry.covers(host, port) for entry in self.denied):
            raise EgressRefusedError(Reason.HOST_DENIED, f"{host}:{port} is denied by the operator")
        if not any(entry.covers(host, port) for entry in self.granted):
            raise EgressRefusedError(
                Reason.HOST_NOT_GRANTED,
                f"{host}:{port} is not granted: the operator can add it to the plugin's hosts",
            )

    def denies_address(self, address: IPv4Address | IPv6Address, port: int) -> bool:
        """Whether an address that a granted name stands for is itself denied."""
        return any(entry.covers_address(address, port) for entry in self.denied)
