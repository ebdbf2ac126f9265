"""Capabilities that a tool requires, such as `binary:NAME`, `read`, `host:NAME:PORT` and `secret:NAME`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from fumehood_sandbox import Level

from fumehood_server.model.nearest import nearest

_MAX_PORT = 65535
_BINARY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,63}")
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}:)(?P<name>{_LABEL}(?:\.{_LABEL})*):(?P<port>[1-9][0-9]{{0,4}})")


class CapabilityKind(StrEnum):
    """Kinds of capability."""

    BINARY = "binary"
    """A program on the sandbox's PATH."""
    READ = "read"
    """At least one path granted for reading, or for writing."""
    WRITE = "write"
    """At least one path granted for writing."""
    HOST = "host"
    """A host and port that the broker reaches."""
    SECRET = "secret"  # noqa: S105 - the word of the grammar
    """A secret by its name."""
    PROXY = "proxy"
    """A relay for programs that only know HTTP_PROXY."""

    @property
    def least_level(self) -> Level:
        """The lowest level at which a tool can have it."""
        return _LEAST_LEVEL.get(self, Level.NONE)


_LEAST_LEVEL = {
    CapabilityKind.READ: Level.READ,
    CapabilityKind.WRITE: Level.WRITE,
    CapabilityKind.HOST: Level.READ,
    CapabilityKind.PROXY: Level.EXTERNAL,
}

_FORMS = {
    CapabilityKind.BINARY: "binary:NAME",
    CapabilityKind.READ: "read",
    CapabilityKind.WRITE: "write",
    CapabilityKind.HOST: "host:NAME:PORT",
    CapabilityKind.SECRET: "secret:NAME",
    CapabilityKind.PROXY: "proxy",
}


class CapabilityError(ValueError):
    """The text is no capability. `problem` says why, `hint` what to write instead."""

    def __init__(self, problem: str, hint: str) -> None:
        """Keep both."""
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Capability:
    """One capability. `str()` gives it back as it is written."""

    kind: CapabilityKind
    name: str = ""
    port: int = 0

    def __str__(self) -> str:
        parts = [self.kind.value, *([self.name] if self.name else []), *([str(self.port)] if self.port else [])]
        return ":".join(parts)


def valid_secret_name(name: str) -> bool:
    """Whether a secret can have this name."""
    return _SECRET.fullmatch(name) is not None


def parse_capability(text: str) -> Capability:
    """Read one capability. There is one way to write each: host names are lower case, ports have no leading zero.

    Raises:
        CapabilityError: the text is none.
    """
    word, colon, rest = text.partition(":")
    try:
        kind = CapabilityKind(word)
    except ValueError:
        raise CapabilityError(f'unknown capability "{text}"', nearest(word, CapabilityKind)) from None
    if kind in {CapabilityKind.READ, CapabilityKind.WRITE, CapabilityKind.PROXY}:
        if not colon:
            return Capability(kind)
    elif kind is CapabilityKind.HOST:
        host = _HOST.fullmatch(rest)
        if host and int(host["port"]) <= _MAX_PORT:
            return Capability(kind, host["name"], int(host["port"]))
    elif (_BINARY if kind is CapabilityKind.BINARY else _SECRET).fullmatch(rest):
        return Capability(kind, rest)
    raise CapabilityError(f'"{text}" is not a capability', f'write "{_FORMS[kind]}"')
