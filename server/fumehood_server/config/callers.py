"""`[[caller]]`, `[server.tls]`: who may call, checked against the addresses that the sidecar listens on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fumehood_server.config.config_file import CallerTable, ClientTable, TlsTable
from fumehood_server.config.listen import Listen, ListenError, parse_listen
from fumehood_server.config.toml_source import TomlSource

PUBLIC_FILES = frozenset({"server.tls.certificate", "server.tls.client_ca", "client.certificate", "client.tls_ca"})
"""Dotted keys of certificates: they may lie where sandboxes are shown, as those of the system's authorities do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """`[server.tls]`. Paths are absolute, and the files are read when they change."""

    certificate: Path
    """The chain, the sidecar's own certificate first."""
    key: Path
    client_ca: Path | None = None
    """Who vouches for callers' certificates. None: callers are not asked for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerConfig:
    """One `[[caller]]`. Patterns of tools hold `*` for any characters."""

    name: str
    tools: tuple[str, ...] = ()
    """What it may list and call."""
    list_only: tuple[str, ...] = ()
    """What it may list beside those."""
    approve: tuple[str, ...] = ()
    operator: bool = False
    """Whether it may use what speaks of all callers or changes the sidecar."""
    certificate: str = ""
    """A name in its certificate. Empty: it has none."""
    listen: Listen | None = None
    """Who comes by this address without a token or a certificate is this caller."""


def read_tls(table: TlsTable | None, folder: Path) -> TlsConfig | None:
    """The files of `[server.tls]`, which are not read here."""
    if table is None:
        return None
    return TlsConfig(
        certificate=folder / table.certificate,
        key=folder / table.key,
        client_ca=None if table.client_ca is None else folder / table.client_ca,
    )


def caller_files(tls: TlsConfig | None, token_file: Path | None) -> dict[str, Path]:
    """The files by which callers are known, by their dotted keys: no plugin may read or change one.

    `token_file` None: it is in the state folder, which is no plugin's in any case.
    """
    named = {"server.token_file": token_file}
    if tls is not None:
        names = ("certificate", "key", "client_ca")
        named |= {f"server.tls.{name}": getattr(tls, name) for name in names}
    return {key: file for key, file in named.items() if file is not None}


def client_files(table: ClientTable, folder: Path) -> dict[str, Path]:
    """What the commands that are run in the folder show a sidecar and know it by, by dotted keys of fumehood.toml.

    No plugin may change one, or read one that isn't in `PUBLIC_FILES`.
    """
    return {f"client.{name}": folder / value for name, value in table.model_dump().items() if value is not None}


def read_callers(
    tables: Sequence[CallerTable],
    source: TomlSource,
    folder: Path,
    *,
    listen: Sequence[Listen],
    tls: TlsConfig | None,
    allow_anonymous: bool,
) -> tuple[CallerConfig, ...]:
    """The callers of the file.

    Raises:
        ConfigError: two are the same, one could never be authenticated, or an address leaves open who calls.
    """
    found: list[CallerConfig] = []
    for index, table in enumerate(tables):
        key = ("caller", index)
        address = None
        if table.listen is not None:
            try:
                address = _bound_to(table.listen, folder, listen, allow_anonymous=allow_anonymous)
            except ListenError as exc:
                raise source.problem((*key, "listen"), exc.problem, exc.hint) from exc
        if table.certificate is not None and (tls is None or tls.client_ca is None):
            problem = f'`certificate` of caller "{table.name}" can\'t be checked: no authority vouches for it'
            raise source.problem((*key, "certificate"), problem, "name its file: `client_ca` in [server.tls]")
        caller = CallerConfig(
            name=table.name,
            tools=tuple(table.tools),
            list_only=tuple(table.list_only),
            approve=tuple(table.approve),
            operator=table.operator,
            certificate=table.certificate or "",
            listen=address,
        )
        for other in found:
            for what in ("name", "certificate", "listen"):
                if getattr(caller, what) and getattr(caller, what) == getattr(other, what):
                    problem = f'two [[caller]] have the same `{what}`: "{other.name}" is the other one'
                    raise source.problem((*key, what), problem, "each caller has its own")
        found.append(caller)
    try:
        check_listen(listen, tls=tls, callers=found, allow_anonymous=allow_anonymous)
    except ListenError as exc:
        raise source.problem(("server", "listen", exc.index), exc.problem, exc.hint) from exc
    return tuple(found)


def check_listen(
    listen: Sequence[Listen], *, tls: TlsConfig | None, callers: Sequence[CallerConfig], allow_anonymous: bool
) -> None:
    """Refuse an address at which the sidecar would not know who calls. Unix sockets are held by their mode.

    Raises:
        ListenError: there is one. `index` says which.
    """
    for index, each in enumerate(listen):
        if not each.is_local and (tls is None or not callers):
            missing = "is no TLS" if tls is None else "are no callers"
            problem = f'"{each.target}" can be reached from other machines, and there {missing}'
            hint = "write [server.tls] and a [[caller]] for each who may call, or listen on 127.0.0.1 or a unix socket"
            raise ListenError(problem, hint, index=index)
        if each.path is None and not callers and not allow_anonymous:
            problem = f'any user of this machine can reach "{each.target}", and nothing says who may call'
            hint = (
                "listen on a unix socket alone, or name who may call by [[caller]] and `fumehood token add`, or write "
                "`allow_anonymous = true` in [server] to let all of them call (serve: --allow-anonymous)"
            )
            raise ListenError(problem, hint, index=index)


def _bound_to(text: str, folder: Path, listen: Sequence[Listen], *, allow_anonymous: bool) -> Listen:
    address = parse_listen(text, folder)
    if address not in listen:
        names = ", ".join(f'"{each.target}"' for each in listen)
        raise ListenError(f'the sidecar does not listen on "{text}"', f"name one of {names}")
    if not address.is_local:
        problem = f'"{text}" can be reached from other machines, and would make each of them this caller'
        raise ListenError(problem, "give the caller a token or a certificate")
    if address.path is None and not allow_anonymous:
        problem = f'"{text}" would make any user of this machine this caller'
        raise ListenError(problem, "write `allow_anonymous = true` in [server], or give the caller a token")
    return address
