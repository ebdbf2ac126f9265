"""Who asks: the caller of a gRPC request, how it was authenticated, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Authentication(StrEnum):
    """How a caller was authenticated. The journal holds these words."""

    NONE = "none"
    """Not at all: TCP on loopback, which the operator opened by `allow_anonymous`."""
    PEER = "unix_socket"
    """By the kernel, by the mode of the unix socket that it came by."""
    TOKEN = "token"  # noqa: S105 - the word for it
    CERTIFICATE = "certificate"
    """By its own TLS certificate, of which the operator's authority vouches."""
    WEBHOOK = "webhook"
    """By the signature of what it sent to the sidecar's webhook: it can do nothing there but decide approvals."""


UNIX_CONNECTION = "unix:"
"""What gRPC calls all connections to unix sockets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who a request comes from. Nothing of it is the caller's own word."""

    name: str = ""
    """Of a `[[caller]]`. Empty: nobody with a name."""
    authenticated_by: Authentication = Authentication.NONE
    connection: str = ""
    """As gRPC names it: `UNIX_CONNECTION` for all on unix sockets."""

    @property
    def recorded(self) -> str:
        """What the journal calls it: its name where it has one, else its connection."""
        return self.name or self.connection

    @property
    def turn_path(self) -> tuple[str, str]:
        """By what it takes turns with others, outermost first: its name, else where it comes from; its connection.

        Without a name all on unix sockets are one, and so are all over TCP, which are of this machine (`NONE`): it
        has more loopback addresses than a caller could be counted by.
        """
        return self.name or self.connection.partition(":")[0] + ":", self.connection

    @property
    def is_by_unix(self) -> bool:
        """Whether it came by a unix socket."""
        return self.connection == UNIX_CONNECTION


def recorded_name(recorded: str) -> str:
    """The caller's name out of what the journal calls it. Empty: it is a connection, which always has a colon."""
    return "" if ":" in recorded else recorded


MCP_CLIENT = "fumehood-mcp-client"
"""Metadata by which the sidecar's own MCP server names its client's connection. Read at the socket for it alone."""

ANONYMOUS = Caller()
"""Nobody. For calls that no request brought."""


class CallerRights(Protocol):
    """What callers may do, by the operator's rules of this moment. Cheap: no I/O, and nothing waits."""

    def may_list(self, caller: Caller, tool: str) -> bool:
        """Whether the caller sees the tool. `tool` is the name that callers use, as everywhere here."""

    def may_call(self, caller: Caller, tool: str) -> bool:
        """Whether the caller may call the tool. What it may call it also sees."""

    def may_approve(self, caller: Caller, tool: str) -> bool:
        """Whether the caller may decide approvals of the tool's calls."""

    def is_operator(self, caller: Caller) -> bool:
        """Whether the caller may use what speaks of all callers or changes the sidecar: plugins, journal, outcomes."""


def sees_call(rights: CallerRights, caller: Caller, recorded: str) -> bool:
    """Whether a caller may ask for a call whose caller the journal calls `recorded`, and cancel it.

    One that has a name has its own calls; an operator has all.
    """
    return rights.is_operator(caller) or (bool(caller.name) and caller.name == recorded_name(recorded))


class UnrestrictedRights:
    """Every caller may do everything: the rules of a sidecar that names no callers."""

    __slots__ = ()

    def may_list(self, caller: Caller, tool: str) -> bool:  # noqa: ARG002 - see CallerRights
        """Yes."""
        return True

    def may_call(self, caller: Caller, tool: str) -> bool:  # noqa: ARG002
        """Yes."""
        return True

    def may_approve(self, caller: Caller, tool: str) -> bool:  # noqa: ARG002
        """Yes."""
        return True

    def is_operator(self, caller: Caller) -> bool:  # noqa: ARG002
        """Yes."""
        return True
