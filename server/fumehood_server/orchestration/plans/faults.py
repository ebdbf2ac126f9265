"""What is wrong with a plan before any of its steps begins, as the error that tells it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.failures import RunFailedError, failed

MAX_FAULTS = 20
"""Told of one plan."""

_MAX_MESSAGE = 300


@dataclass(frozen=True, slots=True)
class PlanFault:
    """What is wrong at one place of a plan."""

    pointer: str
    """JSON pointer. Empty: the plan itself."""
    rule: str
    message: str


def plan_error(code: Code, faults: Iterable[PlanFault], *, reason: str = "plan_invalid") -> RunFailedError:
    """The error of a plan of which no step begins."""
    told = [
        {"pointer": each.pointer[:_MAX_MESSAGE], "rule": each.rule, "message": each.message[:_MAX_MESSAGE]}
        for each, _ in zip(faults, range(MAX_FAULTS), strict=False)
    ]
    words = "; ".join(f"{each['pointer'] or 'it'}: {each['message']}" for each in told)
    return failed(code, f"the plan can't be carried out. {words}", details={"reason": reason, "faults": told})
