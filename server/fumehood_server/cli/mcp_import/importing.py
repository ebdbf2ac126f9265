"""Imports one server: resolves it, compares it with an earlier import, and adds, updates or leaves its plugin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fumehood_server.cli.configured import configured_plugins
from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.mcp_import.asking import Narrowest
from fumehood_server.cli.mcp_import.configuration_place import configuration_at
from fumehood_server.cli.mcp_import.content import ResolvedServer, resolve_server
from fumehood_server.cli.mcp_import.granting import AskedGrants, ask_grants, granted_now, is_listed_with_grants
from fumehood_server.cli.mcp_import.import_settings import MAX_PROBLEM, Import
from fumehood_server.cli.mcp_import.kept_secrets import check_granted_values, check_secrets, with_granted_names
from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.mcp_import.left_out import left_out_of
from fumehood_server.cli.mcp_import.new_server import import_new
from fumehood_server.cli.mcp_import.outcome import Outcome, Status, now_of, planned_now
from fumehood_server.cli.mcp_import.overlaps import check_overlaps
from fumehood_server.cli.mcp_import.own_code import CODE_NAME, say_left_out
from fumehood_server.cli.mcp_import.places import value_of
from fumehood_server.cli.mcp_import.plan import PlannedSecret, ServerPlan
from fumehood_server.cli.mcp_import.plugin_folder import FolderState, holds_secret, imported_in
from fumehood_server.cli.mcp_import.server_import import ServerImport
from fumehood_server.cli.mcp_import.shown_text import hide, public_urls
from fumehood_server.cli.mcp_import.updating import keep_unchanged, update
from fumehood_server.config import SidecarConfig
from fumehood_server.errors import ConfigError
from fumehood_server.plugins.manifest import MANIFEST_NAME


def import_server(plan: ServerPlan, run: Import) -> Outcome:
    """Import one server. What it can't do is in the outcome, so that the others go on."""
    outcome = Outcome(server=plan.entry.name, plugin=plan.name, todo_later=[each.todo for each in plan.lacking])
    outcome.notes += (*plan.copied, *plan.notes, *(each.text for each in plan.refused_places))
    try:
        _import(_begin(plan, run, outcome))
    except NotImportableError as error:
        outcome.refuse(error.code, error.reason, error.todo)
    except CommandError as error:
        outcome.fail(error.code.lower(), error.what[-MAX_PROBLEM:], error.todo)
    except ConfigError as error:
        outcome.fail("config_invalid", f"{error.path}: {error.problem}", error.hint)
    except OSError as error:
        outcome.fail("system_error", f"{error.filename or ''}: {error.strerror or error}", "Look at the folder.")
    return outcome


def _begin(plan: ServerPlan, run: Import, outcome: Outcome) -> ServerImport:
    config = configuration_at(run.config_path)
    into = run.into or run.config_path.parent / "mcp"
    folder = (into / plan.name).resolve()
    outcome.folder = folder
    _check_name(plan.name, folder, config)
    granted = granted_now(config, folder)
    plan = _with_left_out(plan, config, folder, into, outcome)
    plan = with_granted_names(plan, config, folder, granted)
    return ServerImport(plan=plan, run=run, outcome=outcome, config=config, folder=folder, granted=granted or {})


def _with_left_out(plan: ServerPlan, config: SidecarConfig, folder: Path, into: Path, outcome: Outcome) -> ServerPlan:
    """With what is not copied of its code, which is told."""
    if plan.code is None:
        return plan
    left_out = left_out_of(plan.code, plan.left_out, config, folder, imported_in(into))
    for each in map(value_of, plan.command.arguments):
        if each.startswith(f"{CODE_NAME}/"):
            left_out.refuse(plan.code / Path(each).relative_to(CODE_NAME), plan.code)
    said = say_left_out(plan.code, left_out)
    outcome.notes += [said] if said else []
    return replace(plan, left_out=left_out)


def _import(server: ServerImport) -> None:
    run, outcome = server.run, server.outcome
    _check_listing(server)
    if run.dry_run and not server.folder.exists():
        _tell_planned_grants(server)
        return
    if server.is_new:
        _check_before_fetching(server)
    resolved = resolve_server(server.plan, run.host, None if run.upgrade else server.folder, run.say)
    outcome.installs = resolved.what
    outcome.notes += resolved.notes
    server = _with_private_addresses(server, resolved)
    is_unchanged = _compare_folder(server, resolved) is FolderState.SAME and not server.is_new
    if run.dry_run and not is_unchanged:
        _tell_planned(server)
        return
    if not is_unchanged and not run.asker.agrees(_question(server, resolved)):
        outcome.status = Status.DECLINED
        return
    if server.is_new:
        import_new(server, resolved)
        return
    asked = _ask_again(server)
    if is_unchanged and not asked:
        keep_unchanged(server)
    else:
        update(server, resolved, asked)


def _check_name(name: str, folder: Path, config: SidecarConfig) -> None:
    for each in configured_plugins(config):
        if each.name == name and each.config.path != folder:
            what = f"{config.path} has a plugin {name} already, in {each.config.path}"
            raise NotImportableError("name_taken", what, "Rename the server in its host's configuration.")


def _check_listing(server: ServerImport) -> None:
    """Refuse `--list-with-grants` where it would do nothing."""
    if not server.is_to_list_with_grants:
        return
    if server.is_remote:
        what = "--list-with-grants is for servers on stdio: one over HTTP is asked with its grants in any case"
        raise NotImportableError("option", what, "Leave it out.")
    if not server.is_new and not is_listed_with_grants(server.config, server.folder):
        what = f"{server.path} names {server.plan.name} already, and --list-with-grants is for new ones"
        raise NotImportableError("option", what, "Write `list_with_grants = true` into its [[plugin]].")


def _check_before_fetching(server: ServerImport) -> None:
    """Refuse what can't be granted, as far as it is known. Somebody who is to be asked may grant nothing of it."""
    asks = server.run.asker.asks
    grants = AskedGrants() if asks else ask_grants(server.plan, Narrowest())
    check_overlaps(grants, server.config, server.folder)
    check_secrets(server.config, server.folder, grants.secrets, asks=asks)


def _with_private_addresses(server: ServerImport, resolved: ResolvedServer) -> ServerImport:
    """With the addresses that a remote server's name leads to: whoever grants the host is told of them."""
    if not server.is_remote or not any("=" in each for each in resolved.build_private):
        return server
    host = replace(server.plan.hosts[0], private=resolved.build_private)
    return replace(server, plan=replace(server.plan, hosts=(host,)))


def _compare_folder(server: ServerImport, resolved: ResolvedServer) -> FolderState:
    """Compare what is there with what is to be written.

    Raises:
        NotImportableError: it is somebody else's, or a secret kept for it may be another server's.
    """
    left_out = [each for each in server.lacking if not _is_handed_over(server.folder, each)]
    content = resolved.without_secrets(left_out).content
    state = content.state_of(server.folder)
    if state is FolderState.FOREIGN:
        todo = "Give --into FOLDER, or move what is there."
        raise NotImportableError("exists", f"{server.folder} is there, and no import has written it", todo)
    if state in {FolderState.CHANGED, FolderState.BY_HAND}:
        server.outcome.diff = hide(content.diff(server.folder), [each.value or "" for each in server.plan.secrets])
    if state is FolderState.BY_HAND:
        what = f"{server.folder}/plugin.toml was changed by hand since it was imported"
        todo = "Take what you want of the differences, or remove the folder."
        raise NotImportableError("changed_by_hand", what, todo)
    is_shown = server.run.asker.asks or state is FolderState.SAME
    is_same_server = content.is_same_server(server.folder)
    check_granted_values(server.config, server.held, asks=is_shown, is_same_server=is_same_server)
    return state


def _is_handed_over(folder: Path, secret: PlannedSecret) -> bool:
    try:
        return holds_secret((folder / MANIFEST_NAME).read_text(), secret.name)
    except (OSError, UnicodeDecodeError):
        return False


def _tell_planned(server: ServerImport) -> None:
    """Tell what an import would do, where a plugin's folder is there already."""
    if server.is_new:
        _tell_planned_grants(server)
    else:
        server.outcome.status, server.outcome.now = Status.PLANNED, now_of(server.plan, server.granted)


def _tell_planned_grants(server: ServerImport) -> None:
    """Tell what it would be granted if nobody was asked."""
    grants = ask_grants(server.plan, Narrowest())
    server.outcome.now = planned_now(server.plan, grants)
    check_overlaps(grants, server.config, server.folder)
    if server.is_new:
        check_secrets(server.config, server.folder, grants.secrets, asks=False)
    server.outcome.status = Status.PLANNED
    server.outcome.todo_later += grants.todo


def _question(server: ServerImport, resolved: ResolvedServer) -> str:
    plan = server.plan
    if server.outcome.diff:
        asked = ""
        if is_listed_with_grants(server.config, server.folder):
            asked = " It is asked for its tools anew, with what it is granted."
        return f"{server.outcome.diff}\n{plan.name}: take these changes?{asked}"
    if plan.remote is not None:
        return f"{plan.name}: the server {plan.entry.name} at {public_urls(plan.remote.server.url)}. Import it?"
    does = f" It installs {resolved.what}." if resolved.what else ""
    if server.is_to_list_with_grants:
        does += " It is asked for its tools with what it is granted."
    return f"{plan.name}: `{plan.entry.command}` of {plan.entry.name}.{does} Import it?"


def _ask_again(server: ServerImport) -> list[PlannedSecret]:
    """Those of the secrets that an entry of fumehood.toml lacks which it is to have after all, if somebody says so."""
    asker = server.run.asker
    if server.run.dry_run or not asker.asks or server.is_remote:  # a server that was another's is not shown it
        return []
    return [each for each in server.lacking if asker.secret(server.plan.name, each)]
