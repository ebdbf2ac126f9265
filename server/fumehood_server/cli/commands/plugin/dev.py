"""`fumehood plugin dev`: serves one plugin from a child sidecar, and reloads it on save."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fumehood_server.cli.dev_sidecar import DevGrants, DevSecret, DevSidecar
    from fumehood_server.config import SidecarConfig
    from fumehood_server.plugins import CheckReport

_WATCH_TICK_MS = 200
"""Timeout of one wait for inotify, which bounds how long the first iteration takes."""


@click.command(short_help="Serve one plugin while you work on it; reloads on save.")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), default=".")
@click.option("--read", multiple=True, type=click.Path(path_type=Path, exists=True), metavar="PATH", help="Grant it.")
@click.option(
    "--write",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="Too.",
)
@click.option("--host", "hosts", multiple=True, metavar="NAME:PORT", help="Grant requests to it, by address also here.")
@click.option("--build-host", "build_hosts", multiple=True, metavar="NAME:PORT", help="Grant one to its build command.")
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="NAME[=FILE]",
    help="Grant it to the tools that require it: from FILE, or from the environment variable NAME.",
)
def dev(
    folder: Path,
    read: tuple[Path, ...],
    write: tuple[Path, ...],
    hosts: tuple[str, ...],
    build_hosts: tuple[str, ...],
    secrets: tuple[str, ...],
) -> None:
    """Serve just the plugin in FOLDER, show what it logs, and reload it each time that you save.

    It runs in the same sandbox as in production, on a private socket, at the levels that its tools ask for; paths,
    hosts and secrets are what the options grant. Nothing waits for an approval and nothing is pinned. Of
    ./fumehood.toml, where there is one, [sandbox] and `state_dir` are taken, as they are at the start. Ctrl-C ends it.

    \b
    Examples:
      fumehood plugin dev dice
      fumehood plugin dev files --read data --write build/notes
      fumehood plugin dev weather --host api.example.com:443 --secret API_KEY=key.txt
    """
    import signal

    from fumehood_server.cli.folder_check import config_here
    from fumehood_server.cli.output import say

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    # Whatever asks it to end, a closed terminal included, the sidecar's socket and folder are cleaned up.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    session = DevSession(
        folder.resolve(), config_here(), read, write, hosts, tuple(map(_secret, secrets)), build_hosts=build_hosts
    )
    try:
        session.run()
    except KeyboardInterrupt:
        say("\nended")


def _secret(text: str) -> DevSecret:
    """What `--secret` names.

    Raises:
        CommandError: it can't be the name of a secret, or its variable or file isn't there.
    """
    import os

    from fumehood_server.cli.dev_sidecar import DevSecret
    from fumehood_server.cli.failure import CommandError
    from fumehood_server.model.capability import valid_secret_name

    name, equals, file = text.partition("=")
    if not valid_secret_name(name):
        raise CommandError(f'"{name}" can\'t be the name of a secret', "Give --secret NAME or --secret NAME=FILE.")
    if equals and not Path(file).is_file():
        raise CommandError(f"--secret {name}: there is no file {file}", "Give a file that holds the secret's value.")
    if not equals and name not in os.environ:
        raise CommandError(
            f"--secret {name}: there is no environment variable of that name",
            "Export it, or give a file: --secret NAME=FILE.",
        )
    return DevSecret(name=name, file=Path(file) if equals else None)


class DevSession:
    """One plugin under development: its last check, and the sidecar that serves it."""

    def __init__(
        self,
        folder: Path,
        config: SidecarConfig,
        read: tuple[Path, ...],
        write: tuple[Path, ...],
        hosts: tuple[str, ...] = (),
        secrets: tuple[DevSecret, ...] = (),
        *,
        build_hosts: tuple[str, ...] = (),
    ) -> None:
        """`folder` is absolute. Of `config` the sandbox and the folder of environments are used."""
        from fumehood_server.config.load import default_config

        # Checked by the limits that it is served with.
        self._config = replace(config, limits=default_config(Path("/")).limits)
        self._secrets = secrets
        self._build_hosts = build_hosts
        self._folder = folder
        self._read = read
        self._write = write
        self._hosts = hosts
        self._report: CheckReport | None = None
        """The last one without problems."""
        self._is_broken = False
        """Whether there are problems since."""
        self._served_digest = ""
        self._grants: DevGrants | None = None
        self._sidecar: DevSidecar | None = None

    def run(self) -> None:
        """Serve until an interrupt."""
        from watchfiles import watch

        from fumehood_server.cli import output
        from fumehood_server.cli.dev_folder import private_folder
        from fumehood_server.cli.saved_files import is_source

        with ExitStack() as stack:
            private = stack.enter_context(private_folder())
            sidecars = stack.enter_context(ExitStack())
            saves = watch(self._folder, watch_filter=None, rust_timeout=_WATCH_TICK_MS, yield_on_timeout=True)
            # The first iteration adds the inotify watch: saves from here on are seen, also while the plugin is checked.
            pending = next(saves)
            if sys.stdout.isatty():
                output.say(output.Part(f"starting {self._folder.name}: first a check, then a sidecar for it", dim=True))
            self._check_and_serve(private, sidecars)
            output.say(output.Part(f"watching {self._folder}; Ctrl-C ends", dim=True))
            for changes in chain((pending,), saves):
                names = sorted(
                    {str(Path(path).relative_to(self._folder)) for _, path in changes if is_source(self._folder, path)}
                )
                if changes and not names:
                    self._take_up_built()
                elif names:
                    output.say(output.Part(f"\nsaved {', '.join(names)}", bold=True))
                    self._check_and_serve(private, sidecars)

    def _check_and_serve(self, private: Path, sidecars: ExitStack) -> None:
        """Check the folder and serve it; while it has problems, the last version without any is served."""
        from fumehood_server.cli import check_output, folder_check, output
        from fumehood_server.cli.client import SidecarClient
        from fumehood_server.cli.dev_sidecar import DevSidecar
        from fumehood_server.cli.failure import CommandError
        from fumehood_server.plugins.environments.environments import environments_folder

        if not self._build():
            return
        old, report = self._report, folder_check.check_folder(self._folder, self._config, lambda _line: None)
        self._is_broken = not report.ok
        if report.loaded is None:
            check_output.print_problems(output.console(), report)
            output.say(self._what_serves(old.name) if old else "Nothing is served until it is mended.")
            return
        self._report = report
        self._served_digest = report.loaded.digest
        changed = old is None or self._show_changes(old, report)
        grants = self._grants_for(report)
        if self._sidecar is None or grants != self._grants:
            sidecars.close()
            environments = environments_folder(self._config)
            self._sidecar = sidecars.enter_context(
                DevSidecar(private, self._folder, grants, show_event, environments=environments)
            )
            self._grants = grants
        else:
            self._sidecar.forget_pin()
            try:
                with SidecarClient(self._sidecar.address, shows_token=False) as client:
                    client.reload_plugin(old.name if old else report.name)
            except CommandError as error:
                output.say(output.Part(f"not reloaded: {error.what}", fg="red"))
                return
        if changed:
            self._prompt(self._sidecar.address, report)

    def _build(self) -> bool:
        """Run the build command of what was saved, where it has one. False: that failed, and was told."""
        from fumehood_server.cli import output
        from fumehood_server.cli.failure import CommandError
        from fumehood_server.cli.plugin_builds import build_for
        from fumehood_server.plugins.manifest import try_manifest

        manifest = try_manifest(self._folder).manifest
        if manifest is None or not manifest.build:
            return True
        try:
            build_for(manifest, self._config, hosts=self._build_hosts, quiet=False)
        except CommandError as error:
            output.say(output.Part(f"not built: {error.what}", fg="red"))
            return False
        return True

    def _take_up_built(self) -> None:
        """Serve on where a build or a cache wrote what counts as a part of the plugin, which is refused until then."""
        from fumehood_server.cli.client import SidecarClient
        from fumehood_server.cli.failure import CommandError
        from fumehood_server.errors import PluginInvalidError
        from fumehood_server.plugins.store import folder_digest

        loaded = self._report.loaded if self._report else None
        if loaded is None or self._sidecar is None or self._is_broken:
            return
        with suppress(CommandError, PluginInvalidError):
            if folder_digest(self._folder) != self._served_digest:
                self._sidecar.forget_pin()
                with SidecarClient(self._sidecar.address, shows_token=False) as client:
                    self._served_digest = client.reload_plugin(loaded.manifest.name).digest

    def _what_serves(self, name: str) -> str:
        """What is true of calls while the folder has problems: processes that run go on, and none can be started."""
        from fumehood_server.cli.client import SidecarClient
        from fumehood_server.cli.failure import CommandError

        try:
            with SidecarClient(self._sidecar.address if self._sidecar else None, shows_token=False) as client:
                runs = any(worker.state == "ready" for worker in client.get_plugin(name).workers)
        except CommandError:
            runs = False
        if runs:
            return "What was there before still serves, in the processes that run already."
        return "Nothing is served until it is mended: no process of what was there before runs."

    def _grants_for(self, report: CheckReport) -> DevGrants:
        from fumehood_sandbox import Level

        from fumehood_server.cli.dev_sidecar import DevGrants
        from fumehood_server.cli.folder_check import highest_level

        return DevGrants(
            minimum=self._config.sandbox.minimum,
            max_side_effects=highest_level(report),
            hosts=self._hosts,
            read=self._read,
            write=self._write,
            allowed_tools=tuple(tool.name for tool in report.tools if tool.side_effects.allows(Level.WRITE)),
            secrets=self._secrets,
            tool_secrets=tuple(
                (tool.name, tuple(secret.name for secret in self._secrets if f"secret:{secret.name}" in tool.requires))
                for tool in report.tools
            ),
        )

    @staticmethod
    def _show_changes(old: CheckReport, new: CheckReport) -> bool:
        """Print how the definitions changed. Returns whether they did."""
        from fumehood_server.cli.commands.plugin.add import print_diff
        from fumehood_server.cli.output import say
        from fumehood_server.plugins.changes import diff_changes, summarise_changes, tool_changes

        found = tool_changes(old.tools, new.tools)
        if not found:
            say("Reloaded; its definitions are as they were.")
            return False
        say(f"Its definitions changed: {summarise_changes(found)}")
        print_diff(diff_changes(found, max_lines=None))
        return True

    @staticmethod
    def _prompt(address: str, report: CheckReport) -> None:
        """Print how to call each tool, and why one can't be called, as the sidecar says."""
        import json

        from fumehood_server.cli import json_output, output
        from fumehood_server.cli.check_output import print_warnings
        from fumehood_server.cli.client import SidecarClient
        from fumehood_server.cli.commands.tools import print_reasons
        from fumehood_server.cli.schema import example_call

        console = output.console()
        print_warnings(console, report)
        with SidecarClient(address, shows_token=False) as client:
            served = [json_output.tool_json(each) for each in client.list_tools(include_unavailable=True)]
        output.say(output.Part("Call it from another terminal:", bold=True))
        output.say(f"  export FUMEHOOD_ADDRESS={address}")
        schemas = {tool.name: json.loads(tool.input_schema_json) for tool in report.tools}
        for tool in served:
            if tool["availability"]["available"]:
                output.say(f"  {example_call(tool['name'], schemas.get(tool['name'], {}))}")
            else:
                console.print(output.styled(f"  {tool['name']} can't be called:", "yellow"))
                print_reasons(console, tool["availability"]["reasons"])


_QUIET = frozenset({"plugin_loaded", "serving", "draining", "stopped"})
"""Events that `dev` reports itself."""
_COLOURS = {"debug": "bright_black", "warning": "yellow", "error": "red"}


def show_event(event: Mapping[str, Any]) -> None:
    """Print one event of the sidecar's log, shortened for the plugin's author."""
    from fumehood_server.cli.output import Part, one_line, say
    from fumehood_server.model.text import visible_line

    kind = str(event.get("event", ""))
    if kind in _QUIET:
        return
    clock = str(event.get("timestamp", ""))[11:19]
    source, level = "sidecar", str(event.get("level", "info"))
    text = one_line(str(event.get("message") or kind))
    if kind == "plugin_log":
        source, text = str(event.get("source", "plugin")), str(event.get("message", ""))
        text += f" {event['fields_json']}" if event.get("fields_json") else ""
    elif kind in {"execute_end", "execute_cancelled"}:
        source, code = "call", str(event.get("code", ""))
        text = f"{event.get('tool')} {code} in {event.get('total_ms')} ms"
        text += f": {one_line(str(event['message']))}" if event.get("message") else ""
        level = "info" if code == "OK" else "error"
    elif kind == "egress":
        source, outcome = kind, str(event.get("outcome", ""))
        text = f"{event.get('tool')} {event.get('method')} {event.get('shown')} {outcome}"
        text += f": {event['reason']}: {one_line(str(event.get('message', '')))}" if event.get("reason") else ""
    say(
        Part(visible_line(f"{clock:<8} {source:<7} "), dim=True),
        Part(visible_line(text), fg=_COLOURS.get(level)),
        err=True,
    )
