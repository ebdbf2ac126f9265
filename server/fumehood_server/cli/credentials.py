"""What a command shows the sidecar of who calls: options, the environment, or `[client]` of fumehood.toml here."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from fumehood_server.cli.failure import CommandError

CONFIG_NAME = "fumehood.toml"
MAX_FILE_BYTES = 256 * 1024
_META = "fumehood.credentials"

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What is shown."""

    token: str = ""
    """Empty: none."""
    tls_ca: bytes | None = None
    """The authority of the sidecar's certificate. None: the connection is in plain text."""
    certificate: bytes | None = None
    key: bytes | None = None


_OPTIONS = (
    ("--token", "FUMEHOOD_TOKEN", "TOKEN", "Token to call with, or @FILE that holds it."),
    ("--tls-ca", "FUMEHOOD_TLS_CA", "FILE", "Speak TLS, and trust the certificates of this authority (PEM)."),
    ("--cert", "FUMEHOOD_CERT", "FILE", "Certificate to call with (PEM)."),
    ("--key", "FUMEHOOD_KEY", "FILE", "Its private key (PEM)."),
)


def credential_options(command: _Command) -> _Command:
    """Add the options. They go to whoever asks for `credentials`, and not to the command."""

    def keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.meta.setdefault(_META, {})[param.name] = value

    for name, variable, metavar, text in reversed(_OPTIONS):
        command = click.option(
            name, envvar=variable, show_envvar=True, metavar=metavar, help=text, expose_value=False, callback=keep
        )(command)
    return command


def credentials(token_file: str | None = None) -> Credentials:
    """Those of the running command. `token_file` comes before every other token.

    Raises:
        CommandError: a file can't be read, or one is missing beside another.
    """
    context = click.get_current_context(silent=True)
    given: dict[str, str] = {} if context is None else context.meta.get(_META, {})
    configured = _configured(Path.cwd())
    token = given.get("token") if token_file is None else f"@{token_file}"
    ca, certificate, key = (
        given.get(option) or configured.get(name)
        for option, name in (("tls_ca", "tls_ca"), ("cert", "certificate"), ("key", "key"))
    )
    if token is None and "token_file" in configured:
        token = f"@{configured['token_file']}"
    if (certificate is None) != (key is None):
        raise CommandError("a certificate and its key go together", "Give both --cert and --key, or neither.")
    if certificate is not None and ca is None:
        raise CommandError("a certificate is shown over TLS alone", "Give --tls-ca as well.")
    return Credentials(
        token=_token(token or ""),
        tls_ca=None if ca is None else _read("--tls-ca", Path(ca)),
        certificate=None if certificate is None else _read("--cert", Path(certificate)),
        key=None if key is None else _read("--key", Path(key)),
    )


def _configured(folder: Path) -> dict[str, str]:
    """`[client]`, its paths made absolute. Mistakes in the file are reported by `serve`, as for the address."""
    try:
        table = tomllib.loads((folder / CONFIG_NAME).read_text())["client"]
        return {name: str(folder / value) for name, value in table.items() if isinstance(value, str)}
    except (OSError, ValueError, KeyError, AttributeError):
        return {}


def _token(text: str) -> str:
    if text.startswith("@"):
        text = _read("--token", Path(text[1:])).decode(errors="replace").strip()
        if not text:
            raise CommandError("the file of the token is empty", "`fumehood token add NAME` prints one.")
    if not (text.isascii() and text.isprintable()):
        raise CommandError("that is no token", "`fumehood token add NAME` prints one.")
    return text


def _read(option: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES)
    except OSError as error:
        what = f"{option}: {path} can't be read: {error.strerror}"
        raise CommandError(what, "Name a file that you may read.", details={"file": str(path)}) from error
