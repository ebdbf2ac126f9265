"""`fumehood plugin upgrade`: shows what differs from what is pinned, and pins it under the entry that is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fumehood_server.cli.complete import configured_names
from fumehood_server.cli.failure import CommandError, ExitStatus

if TYPE_CHECKING:
    from fumehood_server.cli.configured import ConfiguredPlugin
    from fumehood_server.cli.plugin_source import PluginSource
    from fumehood_server.config import SidecarConfig
    from fumehood_server.model.tool import ToolDefinition
    from fumehood_server.plugins import PinProposal
    from fumehood_server.plugins.file_changes import FileChanges


@click.command(short_help="Look at what another version changes, and pin it.")
@click.argument("name", shell_complete=configured_names)
@click.argument("to", type=click.Path(), required=False, metavar="[PATH|WHEEL|NAME==VERSION]")
@click.option("--config", "config_path", type=click.Path(path_type=Path), metavar="FILE", help="As for serve.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --yes alone.")
def upgrade(name: str, to: str | None, config_path: Path | None, yes: bool, as_json: bool) -> int:
    """Show how another version of NAME differs from what is pinned, and pin it when you agree.

    It differs in definitions, in what it asks for, and in files. Without a second argument the version is what lies in
    the plugin's folder now. The entry in fumehood.toml stays, with what it grants; its path becomes the new folder.

    \b
    Examples:
      fumehood plugin upgrade dice
      fumehood plugin upgrade dice dice==1.1.0
      fumehood plugin upgrade dice dist/dice-1.1.0-py3-none-any.whl --yes
    """
    from fumehood_server.cli import check_output, folder_check, output
    from fumehood_server.cli.commands.plugin.add import agrees, build_folder
    from fumehood_server.cli.configured import configuration, find_configured
    from fumehood_server.cli.plugin_source import PluginSource, opened_source
    from fumehood_server.plugins.manifest import try_manifest

    if as_json and not yes:
        raise CommandError("--json can't ask", "Give --yes as well.")
    path, config = configuration(config_path)
    found = find_configured(path, config, name)
    source = (
        PluginSource(found.config.path)
        if to is None
        else click.get_current_context().with_resource(opened_source(to, config, quiet=as_json))
    )
    held = try_manifest(source.folder).name
    if held != found.name:
        raise CommandError(f"{source.folder} holds the plugin {held}, not {found.name}", "Nothing was changed.")
    build_folder(source, config, (), entry=found.config, yes=yes, quiet=as_json)
    proposal = folder_check.propose_folder_pin(source.folder, config, lambda _line: None, entry=found.config)
    report = proposal.report
    if report.loaded is None:
        if not as_json:
            check_output.print_problems(output.console(stderr=True), report)
        raise CommandError(
            f"{source.folder} can't be served",
            "Nothing was changed. `fumehood plugin check` says more.",
            code="PLUGIN_INVALID",
            status=ExitStatus.FAILED,
            details={"problems": check_output.problems_json(report)},
        )
    files = _files(proposal, config, found)
    moves = report.folder != found.config.path
    if not as_json:
        _show(proposal, found, files)
    changed = moves or not proposal.up_to_date
    if changed:
        if not yes and not agrees(proposal):
            output.note("Nothing was changed.")
            return ExitStatus.FAILED
        _accept(proposal, path, config, found, source)
    if as_json:
        output.print_json(_shape(proposal, found, files, source, path))
    elif changed:
        _say_what_was_done(proposal, path, config, moves=moves)
    return ExitStatus.OK


def _files(proposal: PinProposal, config: SidecarConfig, found: ConfiguredPlugin) -> FileChanges | None:
    """How the files differ, where what is pinned can still be read: its copy, or its folder as it is."""
    from fumehood_server.plugins.catalog import STORE_NAME
    from fumehood_server.plugins.file_changes import file_changes
    from fumehood_server.plugins.store import PluginStore, folder_digest

    report, pinned = proposal.report, proposal.pinned
    if pinned is None or report.loaded is None:
        return None
    copy = PluginStore(config.server.state_dir / STORE_NAME).path(pinned.digest)
    changes = None
    for old in (copy, found.config.path):
        changes = changes or (file_changes(old, pinned.digest, report.folder) if old.is_dir() else None)
    if folder_digest(report.folder) != report.loaded.digest:
        raise CommandError(f"{report.folder} changed while it was read", "Try again.")
    return changes


def _show(proposal: PinProposal, found: ConfiguredPlugin, files: FileChanges | None) -> None:
    from fumehood_server.cli import check_output, output
    from fumehood_server.cli.commands.plugin.add import print_diff
    from fumehood_server.plugins.changes import diff_changes, summarise_changes

    console, report, pinned = output.console(), proposal.report, proposal.pinned
    check_output.print_asks(console, report, found.config)
    console.print()
    check_output.print_warnings(console, report)
    if proposal.up_to_date:
        console.print(output.styled("Exactly this is pinned already.", "green"))
    elif pinned is None:
        console.print("Nothing is pinned under this name yet.")
    else:
        version = report.loaded.manifest.version if report.loaded else ""
        console.print(output.styled(f"Pinned is {pinned.version}; this is {version}."))
        if proposal.changes:
            console.print(output.styled(f"Definitions: {summarise_changes(proposal.changes)}", "yellow"))
            print_diff(diff_changes(proposal.changes, max_lines=None))
        else:
            console.print("Definitions: the same.")
        for line in _asks(proposal)["added"]:
            console.print(output.styled(f"Asks for {line}, which what is pinned did not.", "yellow"))
        for line in _asks(proposal)["removed"]:
            console.print(output.styled(f"Does not ask for {line} any more."))
        if files is None:
            console.print("Files: they differ; what is pinned is not here to compare them with.")
        else:
            count = f"{len(files.added)} new, {len(files.removed)} gone, {len(files.changed)} changed"
            console.print(output.styled(f"Files: {count}", "yellow"))
            print_diff(files.diff)
    for tool in _gone(proposal, found):
        console.print(output.styled(f"[plugin.tools.{tool}] names no tool of it: it would be refused.", "red"))


def _asks(proposal: PinProposal) -> dict[str, list[str]]:
    """Levels and capabilities that it asks for and what is pinned did not, and the other way round."""

    def asked(tools: tuple[ToolDefinition, ...]) -> set[str]:
        return {f"level {tool.side_effects}" for tool in tools} | {each for tool in tools for each in tool.requires}

    old = asked(proposal.pinned.tools) if proposal.pinned else set[str]()
    new = asked(proposal.report.tools)
    return {"added": sorted(new - old), "removed": sorted(old - new)}


def _gone(proposal: PinProposal, found: ConfiguredPlugin) -> list[str]:
    return sorted(found.config.tools.keys() - {tool.name for tool in proposal.report.tools})


def _accept(
    proposal: PinProposal, path: Path, config: SidecarConfig, found: ConfiguredPlugin, source: PluginSource
) -> None:
    import asyncio

    from fumehood_server.cli.config_edit import change_path
    from fumehood_server.plugins.packages.installed import uninstall

    folder = proposal.report.folder
    if folder != found.config.path:
        change_path(path, found.config.path, folder)
    source.kept = True
    asyncio.run(proposal.accept(source.origin))
    if folder != found.config.path:
        uninstall(found.config.path, config.server.state_dir)


def _say_what_was_done(proposal: PinProposal, path: Path, config: SidecarConfig, *, moves: bool) -> None:
    from fumehood_server.cli.configured import CONFIG_CHANGED, reload_running
    from fumehood_server.cli.output import say

    say(f"Pinned in {proposal.lock_path}.")
    if moves:
        say(f"{path} names {proposal.report.folder} now.")
        say(CONFIG_CHANGED)
    else:
        say(reload_running(config, proposal.report.name, proposal.report.folder))


def _shape(
    proposal: PinProposal, found: ConfiguredPlugin, files: FileChanges | None, source: PluginSource, path: Path
) -> dict[str, object]:
    from fumehood_server.cli.check_output import report_json

    pinned = proposal.pinned
    return {
        "plugin": report_json(proposal.report),
        "was_pinned": {"version": pinned.version, "digest": pinned.digest} if pinned else None,
        "was_up_to_date": proposal.up_to_date,
        "changes": [
            {"tool": change.name, "summary": change.summary, "fields": list(change.fields)}
            for change in proposal.changes
        ],
        "asks": _asks(proposal),
        "files": {"added": files.added, "removed": files.removed, "changed": files.changed} if files else None,
        "tools_gone": _gone(proposal, found),
        "lock_path": str(proposal.lock_path),
        "config_path": str(path),
        "old_path": str(found.config.path),
        "origin": source.shape,
    }
