"""Imports all servers of a configuration, one after the other; what goes wrong with one stays with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from fumehood_server.cli.mcp_import.host_configuration import HostConfiguration, ServerEntry
from fumehood_server.cli.mcp_import.import_settings import Import
from fumehood_server.cli.mcp_import.importing import import_server
from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.mcp_import.names import plugin_name
from fumehood_server.cli.mcp_import.outcome import Outcome, Status, before_of
from fumehood_server.cli.mcp_import.plan import plan_server
from fumehood_server.cli.mcp_import.variables import Scope
from fumehood_server.cli.output import note, one_line


def import_all(
    found: HostConfiguration,
    run: Import,
    *,
    wanted: Collection[str] = (),
    given: Mapping[str, str] | None = None,
    plain: Collection[str] = (),
    show: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Import the servers, or those that are `wanted`. Each outcome is shown as soon as it is known."""
    entries = [each for each in found.servers if not wanted or each.name in wanted]
    scope = Scope(
        host=found.host,
        environment=os.environ,
        inputs=found.inputs,
        given=_inputs(found, entries, run, given or {}),
        workspace=found.workspace,
    )
    taken: dict[str, str] = {}
    outcomes = []
    for number, entry in enumerate(entries, 1):
        outcome = _import_one(entry, scope, run, plain, taken, f"{number} of {len(entries)}")
        outcome.before = before_of(entry)
        outcome.notes += [f"its key {key} isn't known here" for key in entry.unknown]
        outcome.notes += [f"its key {key} has no effect here" for key in entry.not_taken]
        outcomes.append(outcome)
        if show is not None:
            show(outcome)
    return outcomes


def _import_one(
    entry: ServerEntry, scope: Scope, run: Import, plain: Collection[str], taken: dict[str, str], count: str
) -> Outcome:
    name = plugin_name(entry.name)
    outcome = Outcome(server=entry.name, plugin=name)
    if entry.disabled:
        outcome.status, outcome.reason = Status.SKIPPED, "it is disabled"
        return outcome
    if name in taken:
        what = f"its name becomes {name} here, as that of {taken[name]}"
        outcome.refuse("name_taken", what, "Rename one of them in the host's configuration.")
        return outcome
    try:
        plan = plan_server(entry, scope, plain=plain)
    except NotImportableError as error:
        outcome.refuse(error.code, error.reason, error.todo)
        return outcome
    taken[name] = one_line(entry.name)

    def say(line: str) -> None:
        if not run.quiet:
            note(f"{name} ({count}): {line}")

    return import_server(plan, replace(run, say=say))


def _inputs(
    found: HostConfiguration, entries: list[ServerEntry], run: Import, given: Mapping[str, str]
) -> dict[str, str]:
    """Values of inputs: those given, and those asked for that a server needs and that are no passwords."""
    values = dict(given)
    text = repr(entries)
    for each in found.inputs.values():
        if each.name in values or each.password or each.default is not None or f"${{input:{each.name}}}" not in text:
            continue
        answer = run.asker.input(each)
        if answer is not None:
            values[each.name] = answer
    return values
