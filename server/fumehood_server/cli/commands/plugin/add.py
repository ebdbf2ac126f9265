"""`fumehood plugin add`: shows what a plugin asks for, pins it and adds it to fumehood.toml; unpacks wheels first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fumehood_server.cli.failure import CommandError, ExitStatus

if TYPE_CHECKING:
    from fumehood_server.cli.plugin_source import PluginSource
    from fumehood_server.config import PluginConfig, SidecarConfig
    from fumehood_server.model.plugin import Grants
    from fumehood_server.plugins import PinProposal
    from fumehood_server.plugins.lock import Origin


@click.command(short_help="Look at what a plugin asks for, and pin it.")
@click.argument("source", type=click.Path(), metavar="PATH|WHEEL|NAME==VERSION")
@click.option("--config", "config_path", type=click.Path(path_type=Path), metavar="FILE", help="As for serve.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@click.option(
    "--max-side-effects",
    "level_name",
    type=click.Choice(["none", "read", "write", "external"]),
    help="Grant up to this level, in a new entry of the configuration.  [default: read]",
)
@click.option("--read", multiple=True, type=click.Path(path_type=Path), metavar="PATH", help="Grant reading; again.")
@click.option("--write", multiple=True, type=click.Path(path_type=Path), metavar="FOLDER", help="Grant writing; again.")
@click.option("--host", "hosts", multiple=True, metavar="NAME:PORT", help="Grant requests to a host; again.")
@click.option(
    "--build-host", "build_hosts", multiple=True, metavar="NAME:PORT", help="Grant a host to its build; again."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --yes alone.")
def add(
    source: str,
    config_path: Path | None,
    yes: bool,
    level_name: str | None,
    read: tuple[Path, ...],
    write: tuple[Path, ...],
    hosts: tuple[str, ...],
    build_hosts: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show what a plugin asks for and how it differs from what is pinned; pin it when you agree.

    PATH is its folder, or a file that `fumehood plugin pack` wrote. A WHEEL with the entry point `fumehood.plugins`, or
    NAME==VERSION of one, which pip fetches without running any of it, is unpacked in the sidecar's state_dir.

    Packages of its plugin.lock are installed, and its build command is run in a sandbox, before it can tell what it
    asks for. You are told which and asked first.

    fumehood.lock then holds its digest and its definitions: what changes behind its name afterwards is unavailable
    until it is added again. A plugin that fumehood.toml doesn't name yet is appended there, with what the options grant
    and nothing more.

    \b
    Examples:
      fumehood plugin add plugins/dice
      fumehood plugin add plugins/files --max-side-effects write --read data --write build/notes
      fumehood plugin add plugins/fetch --host api.example.com:443
      fumehood plugin add dist/dice-1.0.0-py3-none-any.whl
      fumehood plugin add dice==1.0.0 --yes
    """
    from fumehood_server.cli import check_output, folder_check, output
    from fumehood_server.cli.configured import configuration
    from fumehood_server.cli.plugin_source import opened_source
    from fumehood_server.config import PluginConfig

    if as_json and not yes:
        raise CommandError("--json can't ask", "Give --yes as well.")
    path, config = configuration(config_path)
    found = click.get_current_context().with_resource(opened_source(source, config, quiet=as_json))
    folder = found.folder
    if found.origin is not None:
        _check_name_is_free(folder, config)
    _check_links(config, read, write)
    entry = next((each for each in config.plugins if each.path == folder.resolve()), None)
    build_folder(found, config, build_hosts, entry=entry, yes=yes, quiet=as_json)
    proposal = folder_check.propose_folder_pin(folder, config, lambda _line: None, new=_grants(level_name, hosts))
    report = proposal.report
    if report.loaded is None:
        if as_json:
            output.print_json({**_shape(proposal, appended="", path=path), "pinned": False, "origin": found.shape})
        else:
            check_output.print_problems(output.console(stderr=True), report)
            option = " --with-grants" if entry is not None and entry.list_with_grants else ""
            output.note(f"Nothing was pinned. `fumehood plugin check{option}` says more.")
        return ExitStatus.FAILED
    new_entry = _is_new(config, report.folder, level_name, *read, *write, *hosts, *build_hosts)
    if not as_json:
        named = next((each for each in config.plugins if each.path == report.folder), None)
        granted = named or PluginConfig(path=report.folder, grants=_grants(level_name, hosts))
        _show(proposal, granted, new_entry=new_entry)
    appended = ""
    if new_entry or not proposal.up_to_date:
        if not yes and not agrees(proposal):
            output.note("Nothing was changed.")
            return ExitStatus.FAILED
        appended = _accept(
            proposal, path, level_name, read, write, hosts, build_hosts, origin=found.origin, new_entry=new_entry
        )
        if not as_json:
            _say_what_was_done(proposal, path, appended, config)
    found.kept = True
    if as_json:
        output.print_json({**_shape(proposal, appended=appended, path=path), "pinned": True, "origin": found.shape})
    return ExitStatus.OK


def _grants(level_name: str | None, hosts: tuple[str, ...]) -> Grants:
    """What a server over HTTP may be asked with before the configuration names it: what the options grant."""
    from fumehood_sandbox import Level

    from fumehood_server.egress.hosts import HostEntryError, parse_granted
    from fumehood_server.model.plugin import Grants

    for each in hosts:
        try:
            parse_granted(each)
        except HostEntryError as error:
            raise CommandError(f"--host {error}", "Give NAME:PORT, such as api.example.com:443.") from error
    return Grants(max_side_effects=Level(level_name) if level_name else Level.READ, hosts=hosts)


def _check_links(config: SidecarConfig, read: tuple[Path, ...], write: tuple[Path, ...]) -> None:
    """Refuse a grant that goes through a symlink which a plugin can replace, before what it leads to is written down.

    Raises:
        CommandError: there is one.
    """
    from fumehood_server.config.grants import GrantError, check_links

    writable = [path for plugin in config.plugins for path in plugin.grants.write]
    writable += [str(each.resolve()) for each in write]
    for key, paths in (("read", read), ("write", write)):
        try:
            check_links(key, [str(each) for each in paths], folder=Path.cwd(), writable=writable)
        except GrantError as error:
            todo = f"{error.hint[:1].upper()}{error.hint[1:]}."
            raise CommandError(f"--{key}: {error.problem}", todo, code="CONFIG_INVALID") from error


def _check_name_is_free(folder: Path, config: SidecarConfig) -> None:
    """Refuse to unpack a second plugin of one name beside the first, which is an upgrade."""
    from fumehood_server.cli.configured import configured_plugins
    from fumehood_server.plugins.manifest import try_manifest

    name = try_manifest(folder).name
    for each in configured_plugins(config):
        if each.name == name and each.config.path != folder:
            raise CommandError(
                f"{config.path} names {name} already, in {each.config.path}",
                f"`fumehood plugin upgrade {name} TO` takes another version of it.",
            )


def build_folder(
    source: PluginSource,
    config: SidecarConfig,
    hosts: tuple[str, ...],
    *,
    entry: PluginConfig | None,
    yes: bool,
    quiet: bool,
) -> None:
    """Install what the plugin's lock names, or run its build command in a sandbox: it can't be looked at without.

    `entry` is the plugin's in the configuration, by which it may be asked for its tools with what it is granted.

    A wheel without a lock is locked here, where it was unpacked.
    Somebody at the terminal is told what that is and asked first, unless `yes`; the command ends if they decline.
    """
    from fumehood_server.cli.dependency_lock import lock_dependencies
    from fumehood_server.cli.output import note, say
    from fumehood_server.cli.plugin_builds import build_for, work_before
    from fumehood_server.model.plugin import Kind
    from fumehood_server.plugins.environments.plugin_lock import PLUGIN_LOCK_NAME
    from fumehood_server.plugins.manifest import try_manifest

    manifest = try_manifest(source.folder).manifest
    if manifest is None:  # the proposal says what is wrong with it
        return
    unlocked = source.origin is not None and not (source.folder / PLUGIN_LOCK_NAME).exists() and manifest.dependencies
    if yes:
        work: tuple[str, ...] = ()
    elif unlocked:
        work = (f"To be looked at, {manifest.name} has {', '.join(unlocked)} resolved, locked and installed",)
    else:
        work = work_before(manifest, config, hosts=hosts)
    if entry is not None and entry.list_with_grants and manifest.kind is Kind.MCP and not yes:
        how = "is started with what fumehood.toml grants it (list_with_grants)"
        work = (*work, f"To be asked for its tools, {manifest.name} {how}")
    for line in work:
        say(line)
    if work and not _agrees(f"Go on with {manifest.name}?"):
        note("Nothing was changed.")
        raise click.exceptions.Exit(ExitStatus.FAILED)
    if unlocked:
        lock_dependencies(manifest, quiet=quiet)
    build_for(manifest, config, hosts=hosts, quiet=quiet)


def _say_what_was_done(proposal: PinProposal, path: Path, appended: str, config: SidecarConfig) -> None:
    from fumehood_server.cli.configured import CONFIG_CHANGED, reload_running
    from fumehood_server.cli.output import say

    say(f"Pinned in {proposal.lock_path}.")
    if appended:
        say(f"Appended to {path}:\n{appended.strip()}")
        say(CONFIG_CHANGED)
    else:
        say(reload_running(config, proposal.report.name, proposal.report.folder))


def _is_new(config: SidecarConfig, folder: Path, level_name: str | None, *granted: Path | str) -> bool:
    """Whether the configuration doesn't name the folder yet.

    Raises:
        CommandError: it does, and the options would change what it grants.
    """
    if all(plugin.path != folder for plugin in config.plugins):
        return True
    if level_name or granted:
        raise CommandError(
            f"{config.path} names {folder} already", "Change what it grants there; the options are for a new entry."
        )
    return False


def _show(proposal: PinProposal, granted: PluginConfig, *, new_entry: bool) -> None:
    from fumehood_server.cli import check_output, output
    from fumehood_server.plugins.changes import diff_changes, summarise_changes

    console = output.console()
    check_output.print_asks(console, proposal.report, granted)
    console.print()
    check_output.print_warnings(console, proposal.report)
    if proposal.pinned is None:
        console.print("Nothing is pinned under this name yet.")
    elif proposal.up_to_date:
        console.print(output.styled("Exactly this is pinned already.", "green"))
    elif proposal.changes:
        console.print(output.styled(f"Not what is pinned: {summarise_changes(proposal.changes)}", "yellow"))
        print_diff(diff_changes(proposal.changes, max_lines=None))
    else:
        console.print(output.styled("Its files are not the ones that are pinned; its definitions are.", "yellow"))
    if new_entry:
        console.print("The configuration does not name it yet.")


def print_diff(text: str) -> None:
    """Print a unified diff in colours."""
    from fumehood_server.cli.output import Part, say

    colours = {"+": "green", "-": "red", "@": "cyan"}
    for line in text.splitlines():
        say(Part(line, fg=colours.get(line[:1])))


def agrees(proposal: PinProposal) -> bool:
    """Whether the person at the terminal wants it pinned.

    Raises:
        CommandError: there is nobody to ask.
    """
    return _agrees(f"Pin {proposal.report.name}?")


def _agrees(question: str) -> bool:
    from fumehood_server.cli.output import confirm

    if not sys.stdin.isatty():
        raise CommandError("there is nobody to ask", "Give --yes to agree without being asked.", code="NOT_A_TERMINAL")
    return confirm(question)


def _accept(
    proposal: PinProposal,
    path: Path,
    level_name: str | None,
    read: tuple[Path, ...],
    write: tuple[Path, ...],
    hosts: tuple[str, ...],
    build_hosts: tuple[str, ...],
    *,
    origin: Origin | None,
    new_entry: bool,
) -> str:
    """Pin, and append to the configuration what it lacks. The configuration first: it may refuse a grant."""
    import asyncio

    from fumehood_sandbox import Level

    from fumehood_server.cli.config_edit import Entry, append_entry
    from fumehood_server.cli.folder_check import highest_level
    from fumehood_server.model.capability import CapabilityKind

    appended = ""
    capabilities = proposal.report.capabilities
    if new_entry:
        entry = Entry(
            folder=proposal.report.folder,
            max_side_effects=Level(level_name) if level_name else None,
            asks_for=highest_level(proposal.report),
            read=[each.resolve() for each in read],
            write=[each.resolve() for each in write],
            hosts=hosts,
            build_hosts=build_hosts,
            needed_hosts=[f"{each.name}:{each.port}" for each in capabilities if each.kind is CapabilityKind.HOST],
            needed_secrets=[
                (tool.name, text.partition(":")[2])
                for tool in proposal.report.tools
                for text in tool.requires
                if text.startswith("secret:")
            ],
        )
        appended = append_entry(path, entry)
    asyncio.run(proposal.accept(origin))
    return appended


def _shape(proposal: PinProposal, *, appended: str, path: Path) -> dict[str, object]:
    from fumehood_server.cli.check_output import report_json

    return {
        "plugin": report_json(proposal.report),
        "lock_path": str(proposal.lock_path),
        "config_path": str(path),
        "changes": [
            {"tool": change.name, "summary": change.summary, "fields": list(change.fields)}
            for change in proposal.changes
        ],
        "was_pinned": proposal.pinned is not None,
        "was_up_to_date": proposal.up_to_date,
        "config_appended": appended or None,
    }
