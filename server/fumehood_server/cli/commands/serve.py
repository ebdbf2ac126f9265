"""`fumehood serve`: runs the sidecar in the foreground."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fumehood_server.cli.failure import CommandError
    from fumehood_server.config import SidecarConfig
    from fumehood_server.config.grants import Protected
    from fumehood_server.errors import FumehoodError
    from fumehood_server.journal.postgres.driver import DriverMissingError
    from fumehood_server.mcp.errors import McpMissingError
    from fumehood_server.telemetry.settings import TelemetryMissingError

GRPC_EXPERIMENTS = "-event_engine_listener"
"""Accept and read by gRPC's own poller, and not by its event engine, whose threads hand each message on once more.

Measured in docs/decisions/grpc-listener.md. A gRPC that no longer knows the word says so in its log and does without.
"""


@click.command(short_help="Start the sidecar.")
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The operator's configuration.  [default: fumehood.toml here, if there is one]",
)
@click.option(
    "--listen", multiple=True, metavar="ADDRESS", help="unix:PATH or HOST:PORT, in place of the configuration's; again."
)
@click.option(
    "--allow-anonymous",
    is_flag=True,
    help="Let any user of this machine call over TCP on loopback: allow_anonymous in [server].",
)
@click.option(
    "--plugin",
    "folders",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="Serve this plugin as well, up to level read and with no paths granted; again.",
)
@click.option("--locked", is_flag=True, help="Refuse what fumehood.lock doesn't pin, in place of pinning it.")
@click.option(
    "--log-format",
    type=click.Choice(["auto", "json", "console"]),
    default="auto",
    show_default=True,
    help="auto: readable on a terminal, else JSON.",
)
def serve(
    config_path: Path | None,
    listen: tuple[str, ...],
    allow_anonymous: bool,
    folders: tuple[Path, ...],
    locked: bool,
    log_format: str,
) -> int:
    """Start the sidecar and serve until SIGTERM or Ctrl-C; calls under way may finish first.

    SIGHUP has it read its configuration again, as `fumehood reload` does.

    It prints one line `listening ADDRESS` for each address on stdout once calls are taken there, and its log on stderr.

    \b
    Examples:
      fumehood serve
      fumehood serve --plugin ./dice                         try a plugin without a configuration
      fumehood serve --plugin .                              from its own folder: nothing is written there
      fumehood serve --listen unix:/run/fumehood/a.sock --listen 127.0.0.1:7430 --allow-anonymous
      fumehood serve --config /etc/fumehood/fumehood.toml --locked --log-format json
    """
    os.environ.setdefault("GRPC_EXPERIMENTS", GRPC_EXPERIMENTS)  # gRPC reads it when it is loaded
    from fumehood_server.app import serve as run
    from fumehood_server.cli.failure import CommandError
    from fumehood_server.cli.output import note
    from fumehood_server.config import find_config, load_config
    from fumehood_server.config.config import CONFIG_NAME
    from fumehood_server.config.load import default_config
    from fumehood_server.default_folder import default_folder
    from fumehood_server.errors import ConfigError, FumehoodError

    found = find_config(config_path)
    folder = default_folder(Path.cwd())

    def read() -> SidecarConfig:
        load = functools.partial(load_config, found) if found else functools.partial(default_config, folder)
        config = load(allow_anonymous=allow_anonymous)
        return _with_plugins(_with_listen(config, listen), folders)

    def read_again() -> SidecarConfig:
        place = found or Path.cwd() / CONFIG_NAME
        if found is None and place.exists():
            raise ConfigError(place, "was not there when the sidecar was started", hint="restart it to take it up")
        try:
            return read()
        except CommandError as error:
            raise ConfigError(place, error.what, hint=error.todo) from error

    config = read()
    if not config.plugins:
        note("No plugin is named: `fumehood plugin add FOLDER` adds one, --plugin FOLDER tries one.")
    terminal = None if log_format == "auto" else log_format == "console"
    try:
        return run(config, locked=locked, ready=_announce, terminal=terminal, read_config=read_again)
    except FumehoodError as error:
        told = _told(error)
        if told is None:
            raise
        raise told from error


def _told(error: FumehoodError) -> CommandError | None:  # noqa: PLR0911 - one return an error
    """Why it can't serve, with what to do. None: it has words of its own."""
    from fumehood_server.callers import CertificateError
    from fumehood_server.cli.failure import CommandError
    from fumehood_server.journal.postgres.driver import DriverMissingError
    from fumehood_server.journal.store import UnequalSettingsError
    from fumehood_server.machine import StateFolderError
    from fumehood_server.mcp.errors import McpMissingError
    from fumehood_server.rpc.sockets import ListenFailedError
    from fumehood_server.telemetry.settings import TelemetryListenError, TelemetryMissingError

    match error:
        case ListenFailedError():
            todo = error.remedy or "Stop what is there, or choose another address with --listen."
            return CommandError(str(error), todo, code="LISTEN_FAILED", details={"address": error.target})
        case DriverMissingError() | McpMissingError() | TelemetryMissingError():
            return _extra_missing(error)
        case TelemetryListenError():
            todo = "Stop what is there, or name another address: `prometheus` in [telemetry] of fumehood.toml."
            return CommandError(str(error), todo, code="LISTEN_FAILED", details={"address": error.address})
        case UnequalSettingsError():
            todo = "Give all the same in fumehood.toml. To change it, stop them all first."
            details = {"key": f"journal.{error.key}", "here": error.here, "elsewhere": error.there}
            return CommandError(str(error), todo, code="CONFIG_INVALID", details=details)
        case CertificateError():
            details = {"file": str(error.path), "key": f"server.tls.{error.key}"}
            return CommandError(str(error), error.remedy, code="TLS_INVALID", details=details)
        case StateFolderError():
            todo = "Make it writable for user {}, or name another one: `state_dir` in [server] of fumehood.toml."
            details = {"folder": str(error.folder)}
            return CommandError(str(error), todo.format(os.geteuid()), code="NOT_WRITABLE", details=details)
    return None


def _extra_missing(error: DriverMissingError | McpMissingError | TelemetryMissingError) -> CommandError:
    from fumehood_server.cli.failure import CommandError
    from fumehood_server.cli.journal_file import driver_missing
    from fumehood_server.journal.postgres.driver import DriverMissingError
    from fumehood_server.mcp.errors import McpMissingError
    from fumehood_server.model.extras import install_command

    if isinstance(error, DriverMissingError):
        return driver_missing(error)
    extra = "mcp" if isinstance(error, McpMissingError) else "telemetry"
    return CommandError(
        str(error),
        f"Run {install_command(extra)}; or remove [{extra}] from fumehood.toml.",
        code="EXTRA_MISSING",
        details={"module": error.module},
    )


def _announce(targets: tuple[str, ...]) -> None:
    from fumehood_server.cli.output import say

    for target in targets:
        say(f"listening {target}")


def _with_listen(config: SidecarConfig, texts: tuple[str, ...]) -> SidecarConfig:
    from dataclasses import replace

    from fumehood_server.cli.failure import CommandError
    from fumehood_server.config.callers import check_listen
    from fumehood_server.config.grants import socket_folder
    from fumehood_server.config.listen import ListenError, parse_all

    if not texts:
        return config
    try:
        addresses = parse_all(texts, Path.cwd())
        server = config.server
        check_listen(addresses, tls=server.tls, callers=config.callers, allow_anonymous=server.allow_anonymous)
    except ListenError as error:
        raise CommandError(f"--listen: {error.problem}", error.hint, code="BAD_ADDRESS") from error
    folders = [each for address in addresses if address.path is not None for each in socket_folder(address.path)]
    todo = "Put the socket into a folder of its own: a plugin could take its place."
    _check_writable(config, folders, "--listen", todo, code="BAD_ADDRESS")
    return replace(config, server=replace(config.server, listen=addresses))


def _with_plugins(config: SidecarConfig, folders: tuple[Path, ...]) -> SidecarConfig:
    """The configuration with these folders as plugins, unless it names them already: its grants then stand."""
    from dataclasses import replace

    from fumehood_sandbox import Level

    from fumehood_server.config import PluginConfig
    from fumehood_server.config.grants import plugin_folder
    from fumehood_server.model.plugin import Grants

    named = {plugin.path for plugin in config.plugins}
    new = dict.fromkeys(folder.resolve() for folder in folders)
    places = [each for folder in folders for each in plugin_folder(folder.absolute())]
    todo = "Grant a narrower folder in fumehood.toml: it could change the plugin."
    _check_writable(config, places, "--plugin", todo, code="BAD_PLUGIN")
    _check_unreadable(config, [folder for folder in new if folder not in named])
    added = [
        PluginConfig(path=folder, grants=Grants(max_side_effects=Level.READ)) for folder in new if folder not in named
    ]
    return replace(config, plugins=(*config.plugins, *added))


def _check_writable(config: SidecarConfig, places: Sequence[Protected], option: str, todo: str, *, code: str) -> None:
    """Hold what an option names against the configuration's grants, as what the file names is held.

    Raises:
        CommandError: a plugin may write there, or may replace a symlink on the way there.
    """
    from fumehood_server.cli.failure import CommandError
    from fumehood_server.config.grants import GrantError, check_writable

    for plugin in config.plugins:
        try:
            check_writable(tuple(map(Path, plugin.grants.write)), places)
        except GrantError as error:
            raise CommandError(f"{option}: {error.problem}", todo, code=code) from error


def _check_unreadable(config: SidecarConfig, folders: Sequence[Path]) -> None:
    """Refuse a plugin's folder that holds state or secrets of the sidecar: sandboxes are shown it.

    Raises:
        CommandError: there is one.
    """
    from fumehood_server.cli.failure import CommandError
    from fumehood_server.config.mounts import read_mounts

    mounts = read_mounts()
    for folder in folders:
        for each in config.protected:
            if not each.unreadable or not mounts.holds(folder, each.path):
                continue
            path = each.path
            # No copy of a plugin holds a `.fumehood`.
            if not path.is_relative_to(folder) or ".fumehood" not in path.relative_to(folder).parts:
                raise CommandError(
                    f'--plugin: {each.what}, "{each.path}", lies in "{folder}", which sandboxes are shown',
                    "Keep it in a folder of its own.",
                    code="BAD_PLUGIN",
                )
