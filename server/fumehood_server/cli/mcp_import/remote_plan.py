"""Plan of a server over HTTP: its URL checked, its header fields parted into plain ones and secrets."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, urlsplit, urlunsplit

from fumehood_server.cli.mcp_import.host_configuration import ServerEntry
from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.mcp_import.names import field_secret_name, plugin_name
from fumehood_server.cli.mcp_import.secret_values import formed_like_a_secret, looks_like_a_secret, named_like_a_secret
from fumehood_server.cli.mcp_import.variables import Expanded, Scope, expand
from fumehood_server.plugins.remote_server import RemoteServer, read_remote

_STREAMABLE = {"http", "streamable-http", "streamablehttp"}
_SCHEME = re.compile(r"((?:Bearer|Basic|Token|ApiKey) )(?=\S)", re.IGNORECASE)
"""What stands before a token. Whatever else stands before a blank may be part of it."""
_LONG_HEX = re.compile(r"[0-9a-fA-F-]{32,}")
"""As a UUID, or a key, in a URL of a server that is somebody's own."""
_SECRET_FIELDS = {"authorization", "cookie", "x-api-key", "api-key", "x-auth-token", "private-token"}


@dataclass(frozen=True, slots=True)
class HeaderSecret:
    """A header field whose value is kept by the operator."""

    field: str
    prefix: str
    value: Expanded
    name: str
    """Of the secret."""


@dataclass(frozen=True, slots=True)
class RemotePlan:
    """Where a server is, and what is shown to it."""

    server: RemoteServer
    headers: tuple[tuple[str, str], ...]
    """Those that are no secrets."""
    secrets: tuple[HeaderSecret, ...]
    notes: tuple[str, ...]


def plan_remote(entry: ServerEntry, scope: Scope, plain: Collection[str]) -> RemotePlan:
    """Plan it. `plain` are names of header fields, and "url", that are no secrets, whatever they look like.

    Raises:
        NotImportableError: it can't be hosted, or not before something is changed or told.
    """
    if entry.transport.lower() not in _STREAMABLE:
        what = f"it is reached by {entry.transport}, and servers over HTTP are hosted by Streamable HTTP alone"
        raise NotImportableError("transport", what, 'Name its Streamable HTTP endpoint, with "type": "http".')
    notes: list[str] = []
    url = _url(entry, scope, notes, is_plain="url" in plain)
    headers: list[tuple[str, str]] = []
    secrets: list[HeaderSecret] = []
    for field, text in entry.headers.items():
        scheme = _SCHEME.match(text)
        prefix = scheme[1] if scheme else ""
        rest = expand(text[len(prefix) :], scope)
        if rest.problems:
            raise NotImportableError("variable", rest.problems[0], "Then import it again.")
        if field not in plain and (prefix or _is_secret(field, rest)):
            name = field_secret_name(plugin_name(entry.name), field)
            if any(each.name == name for each in secrets):
                what = f"two header fields would be kept as one secret, {name}"
                raise NotImportableError("secret", what, "Leave one of them out, or name it otherwise.")
            secrets.append(HeaderSecret(field, prefix, rest, name))
        elif rest.asked or rest.unset:
            missing = (*rest.asked, *rest.unset)[0]
            todo = f"Give --input {missing}=VALUE." if rest.asked else f"Set {missing}, and import again."
            raise NotImportableError("input", f"the header field {field} needs a value for {missing}", todo)
        else:
            headers.append((field, prefix + rest.text))
    server, problems = read_remote(url, dict(headers), "", Path.cwd())
    if server is None:
        raise NotImportableError("malformed", "; ".join(problems.values()), "Correct it in the host's configuration.")
    if secrets and url.startswith("http:") and not _is_loopback(server.host):
        what = f"{secrets[0].field} would go to {server.host} in plain text"
        raise NotImportableError("insecure_url", what, "Write https://, or leave the field out.")
    return RemotePlan(server, tuple(headers), tuple(secrets), tuple(notes))


def _url(entry: ServerEntry, scope: Scope, notes: list[str], *, is_plain: bool) -> str:
    found = expand(entry.url, scope)
    missing = (*found.problems, *found.asked, *found.unset)
    if missing:
        what = f"its URL needs a value that isn't known: {missing[0]}"
        raise NotImportableError("variable", what, "Set it, or give --input ID=VALUE, and import again.")
    try:
        split = urlsplit(found.text)
        port = split.port
    except ValueError as exc:
        # Not the exception's text, which quotes: a password's part, where that holds what ends an authority.
        raise NotImportableError("malformed", "its URL can't be read as one", "Correct it.") from exc
    if found.secret or (not is_plain and _holds_a_secret(found.text, split)):
        todo = (
            "Hand it over in `headers`, if the server takes it there; then it is kept as a secret. With --plain url "
            "the URL is written into plugin.toml as it is."
        )
        raise NotImportableError("secret_in_url", "its URL holds what looks like a secret", todo)
    if split.hostname == "localhost":  # a name that resolvers make what they like of
        notes.append("localhost is written as 127.0.0.1")
        split = split._replace(netloc="127.0.0.1" if port is None else f"127.0.0.1:{port}")
    return urlunsplit(split)


def _holds_a_secret(text: str, split: SplitResult) -> bool:
    """Whether whoever knows the URL may be let in for that alone: a long random part of its path, say."""
    parts = (*split.path.split("/"), *(pair.partition("=")[2] for pair in split.query.split("&")), split.fragment)
    return formed_like_a_secret(text) or any(formed_like_a_secret(each) or _LONG_HEX.fullmatch(each) for each in parts)


def _is_secret(field: str, value: Expanded) -> bool:
    if value.secret or field.lower() in _SECRET_FIELDS:
        return True
    unknown = value.asked or value.unset
    return named_like_a_secret(field) if unknown else looks_like_a_secret(field, value.text)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.rpartition(":")[0].strip("[]")).is_loopback
    except ValueError:
        return False
