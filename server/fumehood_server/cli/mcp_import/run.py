"""Imports all servers of a configuration, one after the other; what goes wrong with one stays with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from fumehood_server.cli.mcp_import.asking import Asker
from fumehood_server.cli.mcp_import.host_configuration import HOST_NAMES, HostConfiguration, ServerEntry
from fumehood_server.cli.mcp_import.import_settings import Import
from fumehood_server.cli.mcp_import.importing import import_server
from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.mcp_import.left_out import LeftOut
from fumehood_server.cli.mcp_import.names import plugin_name
from fumehood_server.cli.mcp_import.outcome import Outcome, Status, before_of
from fumehood_server.cli.mcp_import.plan import ServerPlan, environment_file_of, plan_server
from fumehood_server.cli.mcp_import.secret_values import looks_like_a_secret
from fumehood_server.cli.mcp_import.shown_text import argument_secrets
from fumehood_server.cli.mcp_import.variables import Scope
from fumehood_server.cli.output import note, one_line


@dataclass(frozen=True, slots=True)
class Planned:
    """One server, with its plan or with why there is none."""

    entry: ServerEntry
    plan: ServerPlan | None
    outcome: Outcome
    notes: tuple[str, ...] = ()
    """Of the file as a whole."""


def plan_all(
    found: HostConfiguration,
    asker: Asker,
    *,
    wanted: Collection[str] = (),
    given: Mapping[str, str] | None = None,
    plain: Collection[str] = (),
) -> list[Planned]:
    """Plan the import of the servers, or of those that are `wanted`. Inputs that no value is known of are asked for."""
    entries = [each for each in found.servers if not wanted or each.name in wanted]
    scope = Scope(
        host=found.host,
        environment=os.environ,
        inputs=found.inputs,
        given=_inputs(found, entries, asker, given or {}),
        workspace=found.workspace,
    )
    taken: dict[str, str] = {}
    planned = [_plan_one(entry, scope, plain, taken) for entry in entries]
    files = [(found.path, "its host's configuration")]
    for each in found.servers:
        file = environment_file_of(each, scope)
        files += [(file, "a file of a server's variables")] if file is not None else []
    left_out = LeftOut().extended(files)
    return [
        replace(
            each,
            plan=replace(each.plan, left_out=left_out) if each.plan else None,
            notes=() if each.entry.disabled else _notes(found),
        )
        for each in planned
    ]


def _notes(found: HostConfiguration) -> tuple[str, ...]:
    if not found.is_assumed:
        return ()
    name = HOST_NAMES[found.host]
    return (f"that {found.path} is {name}'s is assumed, since it doesn't tell: --from names another program",)


def import_all(
    planned: Sequence[Planned], run: Import, *, show: Callable[[Outcome], None] | None = None
) -> list[Outcome]:
    """Import the servers. Each outcome is shown as soon as it is known."""
    outcomes = []
    for number, each in enumerate(planned, 1):
        outcome = each.outcome if each.plan is None else _import_one(each.plan, run, f"{number} of {len(planned)}")
        outcome.before = before_of(each.entry)
        outcome.notes += each.notes
        outcome.notes += [f"its key {key} isn't known here" for key in each.entry.unknown]
        outcome.notes += [f"its key {key} has no effect here" for key in each.entry.not_taken]
        outcome.conceal(_secrets_of(each))
        outcomes.append(outcome)
        if show is not None:
            show(outcome)
    return outcomes


def _plan_one(entry: ServerEntry, scope: Scope, plain: Collection[str], taken: dict[str, str]) -> Planned:
    name = plugin_name(entry.name)
    outcome = Outcome(server=entry.name, plugin=name)
    if entry.disabled:
        outcome.status, outcome.reason = Status.SKIPPED, "it is disabled"
        return Planned(entry, None, outcome)
    if name in taken:
        what = f"its name becomes {name} here, as that of {taken[name]}"
        outcome.refuse("name_taken", what, "Rename one of them in the host's configuration.")
        return Planned(entry, None, outcome)
    try:
        plan = plan_server(entry, scope, plain=plain)
    except NotImportableError as error:
        outcome.refuse(error.code, error.reason, error.todo)
        if error.code == "own_entry":
            outcome.status = Status.SKIPPED
        return Planned(entry, None, outcome)
    taken[name] = one_line(entry.name)
    return Planned(entry, plan, outcome)


def _secrets_of(planned: Planned) -> set[str]:
    """The values that nothing which is said of a server may hold, as far as they are known."""
    entry, plan = planned.entry, planned.plan
    found = argument_secrets(entry.arguments)
    found |= {value for name, value in entry.environment.items() if looks_like_a_secret(name, value)}
    for field, value in entry.headers.items():
        found |= {value, value.partition(" ")[2]} if looks_like_a_secret(field, value) else set()
    found = {each for each in found if "${" not in each}
    return found | {each.value for each in plan.secrets if each.value} if plan else found


def _import_one(plan: ServerPlan, run: Import, count: str) -> Outcome:
    def say(line: str) -> None:
        if not run.quiet:
            note(f"{plan.name} ({count}): {line}")

    return import_server(plan, replace(run, say=say))


def _inputs(
    found: HostConfiguration, entries: list[ServerEntry], asker: Asker, given: Mapping[str, str]
) -> dict[str, str]:
    """Values of inputs: those given, and those asked for that a server needs and that are no passwords."""
    values = dict(given)
    text = repr(entries)
    for each in found.inputs.values():
        if each.name in values or each.password or each.default is not None or f"${{input:{each.name}}}" not in text:
            continue
        answer = asker.input(each)
        if answer is not None:
            values[each.name] = answer
    return values
