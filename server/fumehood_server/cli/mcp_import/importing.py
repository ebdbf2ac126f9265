"""Imports one server: resolves it, writes and builds its plugin, asks for grants, adds it to fumehood.toml, pins it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fumehood_sandbox import Level

from fumehood_server.cli.config_edit import append_entry, grant_secrets
from fumehood_server.cli.configured import configured_plugins
from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.folder_check import propose_folder_pin
from fumehood_server.cli.mcp_import.asking import Narrowest
from fumehood_server.cli.mcp_import.configuration_place import configuration_at
from fumehood_server.cli.mcp_import.content import ResolvedServer, resolve_server
from fumehood_server.cli.mcp_import.granting import (
    AskedGrants,
    ask_grants,
    granted_now,
    left_to_make,
    make_entry,
    not_granted,
    prefix_of,
    without,
)
from fumehood_server.cli.mcp_import.import_settings import MAX_PROBLEM, Import
from fumehood_server.cli.mcp_import.kept_secrets import (
    ask_values,
    check_granted_values,
    check_secrets,
    granted_of,
    keep_values,
    new_secrets,
    renew_values,
    with_granted_names,
)
from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.mcp_import.outcome import Outcome, Status, now_of, planned_now
from fumehood_server.cli.mcp_import.overlaps import check_overlaps
from fumehood_server.cli.mcp_import.plan import PlannedSecret, ServerPlan
from fumehood_server.cli.mcp_import.plugin_folder import FolderContent, FolderState, holds_secret
from fumehood_server.cli.mcp_import.remote_import import import_remote, restored_on_failure
from fumehood_server.cli.mcp_import.tool_hints import hint_at_tools
from fumehood_server.cli.plugin_builds import build_for, manifest_in
from fumehood_server.config import SidecarConfig
from fumehood_server.errors import ConfigError
from fumehood_server.plugins import PinProposal
from fumehood_server.plugins.manifest import MANIFEST_NAME

FIRST_START_TIMEOUT_S = 60.0
"""At least: what was installed just now is read from a cold disk, and by npm's packages in thousands of files."""


def import_server(plan: ServerPlan, run: Import) -> Outcome:
    """Import one server. What it can't do is in the outcome, so that the others go on."""
    outcome = Outcome(server=plan.entry.name, plugin=plan.name, notes=list(plan.notes), todo_later=list(plan.todo))
    try:
        _import(plan, run, outcome)
    except NotImportableError as error:
        outcome.refuse(error.code, error.reason, error.todo)
    except CommandError as error:
        outcome.fail(error.code.lower(), error.what[-MAX_PROBLEM:], error.todo)
    except ConfigError as error:
        outcome.fail("config_invalid", f"{error.path}: {error.problem}", error.hint)
    except OSError as error:
        outcome.fail("system_error", f"{error.filename or ''}: {error.strerror or error}", "Look at the folder.")
    return outcome


def _import(plan: ServerPlan, run: Import, outcome: Outcome) -> None:
    path, config = run.config_path, configuration_at(run.config_path)
    folder = ((run.into or path.parent / "mcp") / plan.name).resolve()
    outcome.folder = folder
    _check_name(plan.name, folder, config)
    granted = granted_now(config, folder)
    plan = with_granted_names(plan, config, folder, granted)
    if run.dry_run and not folder.exists():
        _planned(plan, path, config, folder, outcome)
        return
    if granted is None:  # before anything is fetched, unless somebody is to be asked
        grants = AskedGrants() if run.asker.asks else ask_grants(plan, Narrowest())
        check_overlaps(grants, path, config, folder)
        check_secrets(config, folder, grants.secrets, asks=run.asker.asks)
    resolved = resolve_server(plan, run.host, None if run.upgrade else folder, run.say)
    outcome.installs = resolved.what
    outcome.notes += resolved.notes
    if plan.remote is not None and any("=" in each for each in resolved.build_private):  # by its name
        plan = replace(plan, hosts=(replace(plan.hosts[0], private=resolved.build_private),))
    held = granted_of(plan, granted)
    lacking = [each for each in plan.secrets if granted is not None and each not in held]
    here = resolved.content.without_secrets([each.name for each in lacking if not _is_handed_over(folder, each)])
    state = here.state_of(folder)
    _check_state(state, folder, outcome, here)
    is_shown = run.asker.asks or state is FolderState.SAME
    check_granted_values(config, held, asks=is_shown, is_same_server=here.is_same_server(folder))
    if state is FolderState.SAME and granted is not None:
        asked = _ask_again(plan, lacking, run)
        if not asked:
            _renew(plan, granted, lacking, path, config, run, outcome)
            return
    elif run.dry_run:
        if granted is None:
            _planned(plan, path, config, folder, outcome)
        else:
            outcome.status, outcome.now = Status.PLANNED, now_of(plan, granted)
        return
    elif not run.asker.agrees(_question(plan, resolved, outcome)):
        outcome.status = Status.DECLINED
        return
    else:
        asked = _ask_again(plan, lacking, run)
    if granted is None:
        _import_new(plan, resolved, path, config, folder, run, outcome)
    else:
        left_out = [each for each in lacking if each not in asked]
        content = resolved.content.without_secrets([each.name for each in left_out])
        _update(plan, replace(resolved, content=content), asked, held, path, folder, run, outcome)
        outcome.todo_later += [without(each, path, config, asked_again=plan.remote is None) for each in left_out]


def _planned(plan: ServerPlan, path: Path, config: SidecarConfig, folder: Path, outcome: Outcome) -> None:
    grants = ask_grants(plan, Narrowest())
    outcome.now = planned_now(plan, grants)
    check_overlaps(grants, path, config, folder)
    if granted_now(config, folder) is None:
        check_secrets(config, folder, grants.secrets, asks=False)
    outcome.status = Status.PLANNED
    outcome.todo_later += grants.todo


def _renew(
    plan: ServerPlan,
    granted: Mapping[str, object],
    lacking: Sequence[PlannedSecret],
    path: Path,
    config: SidecarConfig,
    run: Import,
    outcome: Outcome,
) -> None:
    """Nothing has changed, but perhaps what the configuration says of a secret's value."""
    outcome.status, outcome.now = Status.UNCHANGED, now_of(plan, granted)
    with contextlib.ExitStack() as undo:
        outcome.notes += renew_values(config, plan.name, granted_of(plan, granted), run.asker, undo)
    outcome.todo_later += left_to_make(plan, granted)
    outcome.todo_later += [without(each, path, config, asked_again=plan.remote is None) for each in lacking]


def _ask_again(plan: ServerPlan, lacking: Sequence[PlannedSecret], run: Import) -> list[PlannedSecret]:
    """Those of the secrets that an entry of fumehood.toml lacks which it is to have after all, if somebody says so."""
    if run.dry_run or not run.asker.asks or plan.remote is not None:  # a server that was another's is not shown it
        return []
    return [each for each in lacking if run.asker.secret(plan.name, each)]


def _is_handed_over(folder: Path, secret: PlannedSecret) -> bool:
    try:
        return holds_secret((folder / MANIFEST_NAME).read_text(), secret.name)
    except (OSError, UnicodeDecodeError):
        return False


def _import_new(
    plan: ServerPlan,
    resolved: ResolvedServer,
    path: Path,
    config: SidecarConfig,
    folder: Path,
    run: Import,
    outcome: Outcome,
) -> None:
    """Ask for its grants, write and build it, and name it in fumehood.toml. The grants' folders are made."""
    grants = ask_grants(plan, run.asker)
    check_secrets(config, folder, grants.secrets, asks=run.asker.asks)
    grants.make_folders()
    check_overlaps(grants, path, config, folder)
    left_out = [each for each in plan.secrets if each not in grants.secrets]
    content = resolved.content.without_secrets([each.name for each in left_out])
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as undo:
        undo.enter_context(_undone_on_failure(folder, lambda: granted_now(configuration_at(path), folder) is not None))
        content.write(folder)
        if plan.remote is not None:
            proposal = import_remote(
                plan, grants, path=path, folder=folder, resolved=resolved, run=run, outcome=outcome
            )
        else:
            proposal = _built(folder, config, resolved, run)
            _grant(plan, grants, path, proposal, resolved, run, outcome, undo)
            asyncio.run(proposal.accept())
    outcome.now = now_of(plan, granted_now(configuration_at(path), folder) or {})
    outcome.tell_tools(proposal.report, Level(str(outcome.now["max_side_effects"])))
    hint_at_tools(outcome, () if plan.remote else proposal.report.tools)
    outcome.todo_later += [
        *grants.todo,
        *(without(each, path, config, asked_again=plan.remote is None) for each in left_out),
    ]
    outcome.status = Status.IMPORTED


def _update(
    plan: ServerPlan,
    resolved: ResolvedServer,
    asked: Sequence[PlannedSecret],
    held: Sequence[PlannedSecret],
    path: Path,
    folder: Path,
    run: Import,
    outcome: Outcome,
) -> None:
    """Write, build and pin it anew. Its entry stays as it is, with the secrets more that were `asked` for."""
    with contextlib.ExitStack() as undo:
        undo.enter_context(_undone_on_failure(folder, lambda: False))
        undo.enter_context(restored_on_failure(path))
        config = configuration_at(path)
        check_secrets(config, folder, asked, asks=run.asker.asks)
        outcome.notes += renew_values(config, plan.name, held, run.asker, undo)
        resolved.content.write(folder)
        if asked:
            outcome.todo_later += keep_values(config, plan.name, ask_values(asked, run.asker), run.asker, undo)
            index = next(index for index, each in enumerate(config.plugins) if each.path == folder)
            grant_secrets(path, index, [each.name for each in asked], new_secrets(config, asked))
        config = configuration_at(path)
        proposal = _built(folder, config, resolved, run)
        asyncio.run(proposal.accept())
    granted = granted_now(config, folder) or {}
    outcome.now = now_of(plan, granted)
    outcome.notes += not_granted(plan, granted)
    outcome.todo_later += left_to_make(plan, granted)
    outcome.tell_tools(proposal.report, Level(str(granted["max_side_effects"])))
    hint_at_tools(outcome, () if plan.remote else proposal.report.tools)
    outcome.status = Status.UPDATED


@contextlib.contextmanager
def _undone_on_failure(folder: Path, is_named: Callable[[], bool]) -> Iterator[None]:
    """Put the folder back as it was, or remove it, if what is done to it fails and no configuration names it newly."""
    was_there = folder.exists()
    with tempfile.TemporaryDirectory(prefix="fumehood-import-") as name:
        old = Path(name) / "old"
        if was_there:
            shutil.copytree(folder, old, symlinks=True)
        try:
            yield
        except BaseException:
            if was_there:
                shutil.rmtree(folder)
                shutil.copytree(old, folder, symlinks=True)
            elif not is_named():
                shutil.rmtree(folder, ignore_errors=True)
            raise


def _check_name(name: str, folder: Path, config: SidecarConfig) -> None:
    for each in configured_plugins(config):
        if each.name == name and each.config.path != folder:
            what = f"{config.path} has a plugin {name} already, in {each.config.path}"
            raise NotImportableError("name_taken", what, "Rename the server in its host's configuration.")


def _check_state(state: FolderState, folder: Path, outcome: Outcome, content: FolderContent) -> None:
    if state is FolderState.FOREIGN:
        todo = "Give --into FOLDER, or move what is there."
        raise NotImportableError("exists", f"{folder} is there, and no import has written it", todo)
    if state in {FolderState.CHANGED, FolderState.BY_HAND}:
        outcome.diff = content.diff(folder)
    if state is FolderState.BY_HAND:
        what = f"{folder}/plugin.toml was changed by hand since it was imported"
        raise NotImportableError(
            "changed_by_hand", what, "Take what you want of the differences, or remove the folder."
        )


def _question(plan: ServerPlan, resolved: ResolvedServer, outcome: Outcome) -> str:
    if outcome.diff:
        return f"{outcome.diff}\n{plan.name}: take these changes?"
    if plan.remote is not None:
        return f"{plan.name}: the server {plan.entry.name} at {plan.remote.server.url}. Import it?"
    does = f" It installs {resolved.what}." if resolved.what else ""
    return f"{plan.name}: `{plan.entry.command}` of {plan.entry.name}.{does} Import it?"


def _built(folder: Path, config: SidecarConfig, resolved: ResolvedServer, run: Import) -> PinProposal:
    """Install it, and start it in its sandbox to be told its tools.

    Raises:
        NotImportableError: it doesn't start, or its tools can't be taken.
    """
    build_for(manifest_in(folder), config, hosts=resolved.build_hosts, private=resolved.build_private, quiet=run.quiet)
    run.say("starting it in a sandbox, to be told its tools")
    lines: list[str] = []
    server = replace(config.server, start_timeout_s=max(config.server.start_timeout_s, FIRST_START_TIMEOUT_S))
    proposal = propose_folder_pin(folder, replace(config, server=server), lambda line: lines.append(line.message))
    if proposal.report.loaded is None:
        said = [each.problem for each in proposal.report.faults] or [each.message for each in proposal.report.problems]
        more = [each for each in lines[-6:] if not any(each in one for one in said)]
        what = "\n".join((*said[:4], *more))[-MAX_PROBLEM:]
        raise NotImportableError("not_started", what, "Mend what it says, and import it again.")
    return proposal


def _grant(
    plan: ServerPlan,
    grants: AskedGrants,
    path: Path,
    proposal: PinProposal,
    resolved: ResolvedServer,
    run: Import,
    outcome: Outcome,
    undo: contextlib.ExitStack,
) -> None:
    """Write the grants, with `undo` to take them back.

    Secrets' files first: the configuration that names them is loaded as a whole.
    """
    config = configuration_at(path)
    counts = Counter(tool.side_effects for tool in proposal.report.tools)
    level = run.asker.level(plan.name, {each: counts[each] for each in Level})
    outcome.todo_later += keep_values(config, plan.name, ask_values(grants.secrets, run.asker), run.asker, undo)
    undo.enter_context(restored_on_failure(path))
    prefix = prefix_of(proposal.report, config)
    append_entry(path, make_entry(grants, level, proposal.report.folder, prefix, resolved, config))
    if prefix:
        outcome.notes.append(f"its tools' names begin with {prefix}: another plugin has a tool of one name")
