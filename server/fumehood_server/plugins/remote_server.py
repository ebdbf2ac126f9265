"""`url` and `[plugin.headers]` of kind `mcp`: a server over Streamable HTTP, reached by the sandbox's relay alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fumehood_server.egress.errors import EgressError
from fumehood_server.egress.url import parse_url
from fumehood_server.model.capability import CapabilityError, parse_capability, valid_secret_name
from fumehood_server.plugins.manifest_file import SecretHeader

MAX_VALUE_CHARACTERS = 4096
_FIELD = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
_VALUE = re.compile(r"[\x20-\x7e\t]*")
_OURS = frozenset(
    (
        *("accept", "accept-encoding", "connection", "content-length", "content-type", "expect", "host", "keep-alive"),
        *("mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "te", "trailer", "transfer-encoding"),
        *("upgrade", "user-agent"),
    )
)
"""Fields that the adapter or the connection sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteServer:
    """Where a server is, and what is shown to it."""

    url: str
    host: str
    """Name and port, as a grant has them."""
    headers: tuple[tuple[str, str], ...] = ()
    """Names of header fields, and their values."""
    secret_headers: tuple[tuple[str, str, str], ...] = ()
    """Names of header fields, the secrets that their values hold, and what stands before those."""
    authorities: str = ""
    """A file of the plugin with the certificate authorities that alone are trusted. Empty: those of the system."""

    @property
    def capabilities(self) -> frozenset[str]:
        """What each of its tools requires."""
        return frozenset({f"host:{self.host}", "proxy", *(f"secret:{secret}" for _, secret, _ in self.secret_headers)})


def read_remote(
    url: str, headers: Mapping[str, str | SecretHeader], authorities: str, folder: Path
) -> tuple[RemoteServer | None, dict[str, str]]:
    """The server, or None; and what is wrong, by the key in `[plugin]`."""
    problems: dict[str, str] = {}
    host = ""
    try:
        parsed = parse_url(url)
        host = f"{parsed.host.name}:{parsed.port}"
        parse_capability(f"host:{host}")
    except (EgressError, CapabilityError) as exc:
        problems["url"] = str(exc)
    if authorities and not _is_own_file(authorities, folder):
        problems["authorities"] = f'"{authorities}" is not a file of the plugin\'s folder'
    for name, value in headers.items():
        problem = _header_problem(name, value)
        if problem:
            problems[f"headers.{name}"] = problem
    if problems:
        return None, problems
    return (
        RemoteServer(
            url=url,
            host=host,
            authorities=authorities,
            headers=tuple((name, value) for name, value in headers.items() if isinstance(value, str)),
            secret_headers=tuple(
                (name, value.secret, value.prefix) for name, value in headers.items() if not isinstance(value, str)
            ),
        ),
        {},
    )


def _is_own_file(name: str, folder: Path) -> bool:
    path = (folder / name).resolve()
    return not Path(name).is_absolute() and path.is_relative_to(folder.resolve()) and path.is_file()


def _header_problem(name: str, value: str | SecretHeader) -> str:
    if not _FIELD.fullmatch(name):
        return f'"{name[:80]}" is not the name of a header field'
    if name.lower() in _OURS or name.lower().startswith(("proxy-", "mcp-param-")):
        return f"{name} is not the plugin's to set"
    if isinstance(value, str):
        plain = value
    elif not valid_secret_name(value.secret):
        return f'"{value.secret}" is not the name of a secret'
    else:
        plain = value.prefix
    if not _VALUE.fullmatch(plain) or len(plain) > MAX_VALUE_CHARACTERS:
        return f"must be at most {MAX_VALUE_CHARACTERS} printable ASCII characters"
    return ""


__all__ = ["RemoteServer", "read_remote"]
