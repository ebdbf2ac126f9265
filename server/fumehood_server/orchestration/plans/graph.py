"""A plan's graph: which step comes after which. Without cycles, and with no edge to nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fumehood_server.model.nearest import nearest
from fumehood_server.orchestration.plans.faults import PlanFault
from fumehood_server.orchestration.plans.plan import ExecutionPlan, PlanStep
from fumehood_server.orchestration.plans.references import Reference, TemplateError, references_in
from fumehood_server.orchestration.plans.steps import MapStep, ValidateStep


def structure_faults(plan: ExecutionPlan) -> Iterator[PlanFault]:
    """What keeps a plan's steps from being put in an order, and what they refer to in vain."""
    names = [step.name for step in plan.steps]
    known = frozenset(names)
    for index, step in enumerate(plan.steps):
        if step.name in names[:index]:
            yield PlanFault(f"/steps/{index}/name", "unique", f'another step is named "{step.name}"')
        yield from _edge_faults(index, step, known)
        if isinstance(step, ValidateStep) and step.retries and plan.source_of(step.subject) is None:
            message = "only the whole output of an infer step can be asked for again: leave them out"
            yield PlanFault(f"/steps/{index}/retries", "retries", message)
    yield from _output_faults(plan, known)
    cycle = find_cycle({step.name: step.dependencies for step in plan.steps})
    if cycle:
        yield PlanFault("/steps", "cycle", "steps wait for one another: " + " after ".join(cycle))


def _edge_faults(index: int, step: PlanStep, known: frozenset[str]) -> Iterator[PlanFault]:
    for name in sorted(step.dependencies - known):
        hint = nearest(name[:64], known)
        yield PlanFault(
            f"/steps/{index}", "reference", f'there is no step "{name[:64]}"' + (f"; {hint}" if hint else "")
        )
    if not isinstance(step, MapStep) and any(each.step is None for each in step.references):
        yield PlanFault(f"/steps/{index}", "item", 'only the "do" of a map has an item')


def _output_faults(plan: ExecutionPlan, known: frozenset[str]) -> Iterator[PlanFault]:
    try:
        found: list[Reference] = list(references_in(plan.output_template))
    except TemplateError as exc:
        yield PlanFault("/output", "reference", exc.problem)
        return
    for each in found:
        if each.step is None:
            yield PlanFault("/output", "item", 'only the "do" of a map has an item')
        elif each.step not in known:
            yield PlanFault("/output", "reference", f'there is no step "{each.step[:64]}"')


def find_cycle(after: Mapping[str, frozenset[str]]) -> list[str]:
    """Names of a cycle, the first again at its end. Empty: there is none. Unknown names are passed over."""
    left = {name: {each for each in names if each in after} for name, names in after.items()}
    while free := [name for name, names in left.items() if not names]:
        for name in free:
            del left[name]
        for names in left.values():
            names.difference_update(free)
    if not left:
        return []
    # Each name that is left waits for one that is left, so that this walk comes back to where it was.
    walk = [next(iter(left))]
    while walk[-1] not in walk[:-1]:
        walk.append(min(left[walk[-1]]))
    return walk[walk.index(walk[-1]) :]
