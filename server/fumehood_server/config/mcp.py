"""`[mcp]`: where MCP clients are served over HTTP, and by whom that can be reached."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fumehood_server.config.callers import CallerConfig, TlsConfig
from fumehood_server.config.config_file import McpTable
from fumehood_server.config.listen import Listen, ListenError, parse_listen
from fumehood_server.config.toml_source import TomlSource

SOCKET_NAME = "mcp.sock"
"""In the state folder: by it the MCP server's process reaches the sidecar."""

_ORIGIN = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:[0-9]{1,5})?")
_HOST = re.compile(r"\[[0-9a-f:.]+\]|[a-z0-9.-]+")
_ISSUER = re.compile(
    r"(https://(\[[0-9a-f:.]+\]|[a-z0-9.-]+)|http://(localhost|127\.0\.0\.1|\[::1\]))(:[0-9]{1,5})?"
    r"(/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?"
)
"""RFC 8414, 2: https, neither a query nor a fragment. By http only what no network is between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpConfig:
    """`[mcp]`."""

    listen: Listen
    """TCP."""
    socket: Listen
    """The unix socket by which it calls. Nobody else is told of it."""
    tls: TlsConfig | None = None
    """The files of [server.tls]. None: plain text."""
    allow_anonymous: bool = False
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    authorization_servers: tuple[str, ...] = ()
    """URLs of issuers."""
    max_sessions: int = 1024
    session_idle_s: float = 1800.0
    max_requests: int = 1024


def read_mcp(
    table: McpTable | None,
    source: TomlSource,
    *,
    state_dir: Path,
    tls: TlsConfig | None,
    callers: Sequence[CallerConfig],
) -> McpConfig | None:
    """The table, checked against who may call. None: there is none.

    Raises:
        ConfigError: it can't be honoured, or would leave open who calls.
    """
    if table is None:
        return None
    try:
        listen = parse_listen(table.listen, source.path.parent)
        _check_who_calls(listen, table, tls, callers)
    except ListenError as exc:
        raise source.problem(("mcp", "listen"), exc.problem, exc.hint) from exc
    if table.tls and tls is None:
        problem = "`tls` in [mcp] has no certificate to show"
        raise source.problem(("mcp", "tls"), problem, "write [server.tls] with `certificate` and `key`")
    for key, values, form, example in (
        ("allowed_origins", table.allowed_origins, _ORIGIN, "https://app.example.com"),
        ("allowed_hosts", table.allowed_hosts, _HOST, "tools.example.com"),
        ("authorization_servers", table.authorization_servers, _ISSUER, "https://login.example.com"),
    ):
        for index, value in enumerate(values):
            if not form.fullmatch(value):
                raise source.problem(("mcp", key, index), f'"{value}" can\'t be in `{key}`', f'write "{example}"')
    try:
        socket = parse_listen(f"unix:{state_dir.absolute() / SOCKET_NAME}", source.path.parent)
    except ListenError as exc:
        raise source.problem(("mcp",), f"[mcp] needs a socket in `state_dir`: {exc.problem}", exc.hint) from exc
    return McpConfig(
        listen=listen,
        socket=socket,
        tls=tls if table.tls else None,
        allow_anonymous=table.allow_anonymous,
        allowed_hosts=tuple(table.allowed_hosts),
        allowed_origins=tuple(table.allowed_origins),
        authorization_servers=tuple(table.authorization_servers),
        max_sessions=table.max_sessions,
        session_idle_s=table.session_idle_s,
        max_requests=table.max_requests,
    )


def _check_who_calls(listen: Listen, table: McpTable, tls: TlsConfig | None, callers: Sequence[CallerConfig]) -> None:
    if listen.path is not None:
        raise ListenError("MCP over HTTP is served over TCP alone", 'write "127.0.0.1:PORT"')
    if not listen.is_local:
        if not (table.tls and tls is not None and callers):
            missing = "are no callers" if table.tls and tls is not None else "is no TLS"
            problem = f'"{listen.target}" can be reached from other machines, and there {missing}'
            hint = "write `tls = true` in [mcp], [server.tls] and a [[caller]] for each who may call, or 127.0.0.1"
            raise ListenError(problem, hint)
        if table.allow_anonymous:
            problem = f'"{listen.target}" can be reached from other machines, and `allow_anonymous` would let all call'
            raise ListenError(problem, "remove it, or listen on 127.0.0.1")
    if not callers and not table.allow_anonymous:
        problem = f'any user of this machine can reach "{listen.target}", and nothing says who may call'
        hint = (
            "name who may call by [[caller]] and `fumehood token add`, or write `allow_anonymous = true` in [mcp] "
            "to let all of them call"
        )
        raise ListenError(problem, hint)


__all__ = ["McpConfig", "read_mcp"]
