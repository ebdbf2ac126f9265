"""The sidecar's address: `--address`, else the first of fumehood.toml, else the default socket."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from fumehood_server.cli.credentials import credential_options
from fumehood_server.cli.failure import CommandError
from fumehood_server.default_folder import default_folder

CONFIG_NAME = "fumehood.toml"
DEFAULT_ADDRESS = "unix:.fumehood/fumehood.sock"

UNIX_PATH_LIMIT_BYTES = 107
"""`sun_path` holds 108 bytes with its closing NUL (unix(7))."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


def address_option(command: _Command) -> _Command:
    """Add `--address`, and the options of who calls, to a command that talks to the sidecar."""
    command = credential_options(command)
    option = click.option(
        "--address",
        envvar="FUMEHOOD_ADDRESS",
        show_envvar=True,
        metavar="ADDRESS",
        help="Where the sidecar listens: unix:PATH or HOST:PORT.  [default: the first of fumehood.toml here, "
        f"or {DEFAULT_ADDRESS}]",
    )
    return option(command)


def resolve_address(given: str | None) -> str:
    """The gRPC target to dial.

    Raises:
        CommandError: `given` is not an address.
    """
    if given is not None:
        return _checked(given)
    here = Path.cwd()
    return _configured(here) or _checked(f"unix:{default_folder(here) / DEFAULT_ADDRESS.removeprefix('unix:')}")


def _checked(text: str) -> str:
    target = text if text.startswith("unix:") or "/" not in text else f"unix:{text}"
    if target.startswith("unix:"):
        path = Path(target.removeprefix("unix:")).absolute()
        size = len(str(path).encode())
        if size > UNIX_PATH_LIMIT_BYTES:
            raise CommandError(
                f"the socket's path {path} has {size} bytes, and the kernel takes {UNIX_PATH_LIMIT_BYTES}",
                "Go to a folder nearer to it and give a relative path, or link to it from a shorter one.",
                code="BAD_ADDRESS",
            )
        return f"unix:{path}"
    host, _, port = target.rpartition(":")
    if not host or not port.isdecimal():
        raise CommandError(
            f'"{text}" is not an address', "Give unix:PATH or HOST:PORT, such as 127.0.0.1:7430.", code="BAD_ADDRESS"
        )
    return target


def _configured(folder: Path) -> str | None:
    """The first address of fumehood.toml, a unix socket rather than TCP. None where there is no usable one.

    Mistakes in the file are reported by `serve`; a client falls back to the default. `config.load_config` isn't used
    here, because its import takes longer than a call.
    """
    try:
        listen = tomllib.loads((folder / CONFIG_NAME).read_text())["server"]["listen"]
        targets = [_checked(text) for text in listen if isinstance(text, str)]
    except (OSError, ValueError, KeyError, TypeError, CommandError):
        return None
    return min(targets, key=lambda target: not target.startswith("unix:"), default=None)
