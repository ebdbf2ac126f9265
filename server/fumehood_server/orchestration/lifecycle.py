"""States of a run, and the one function that says which may follow which."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fumehood_server.model.taxonomy import Category
from fumehood_server.orchestration.request import Mode


class State(StrEnum):
    """Where a run is."""

    INIT = "INIT"
    PLAN = "PLAN"
    """A plan is made and checked."""
    PREPARE = "PREPARE"
    """Engine, tools, history and output contract are found."""
    EXECUTE = "EXECUTE"
    """Models are asked and tools are called."""
    VALIDATE = "VALIDATE"
    """The output is held against its contract."""
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_last(self) -> bool:
        """Whether nothing follows."""
        return self in _LAST


_LAST = frozenset({State.COMPLETE, State.FAILED, State.CANCELLED})


@dataclass(frozen=True, slots=True)
class ModeRules:
    """What a mode may visit, emit and recover from: the table of DESIGN, section 9."""

    follows: Mapping[State, frozenset[State]]
    """By state, what may follow beside FAILED and CANCELLED."""
    emits: frozenset[Category]
    """Families of the errors that it may end with. Those of the configuration are any mode's: they end PREPARE."""
    recovers: frozenset[Category]
    """Families of the errors after which it may go on."""


def _path(*states: State, again: Mapping[State, State] | None = None) -> Mapping[State, frozenset[State]]:
    follows: dict[State, set[State]] = {each: set() for each in states}
    for one, two in itertools.pairwise(states):
        follows[one].add(two)
    for one, two in (again or {}).items():
        follows[one].add(two)
    return {state: frozenset(found) for state, found in follows.items()}


_S, _C = State, Category
_TWICE = {_S.VALIDATE: _S.EXECUTE}

MODE_RULES: Mapping[Mode, ModeRules] = {
    Mode.CHAT: ModeRules(
        # Each turn's answer is looked at, and a follow-up message makes a further turn.
        _path(_S.INIT, _S.PREPARE, _S.EXECUTE, _S.VALIDATE, _S.COMPLETE, again=_TWICE),
        emits=frozenset({_C.INFERENCE, _C.TOOL, _C.ORCHESTRATION, _C.CANCELLATION}),
        recovers=frozenset({_C.TOOL}),
    ),
    Mode.STRUCTURED: ModeRules(
        _path(_S.INIT, _S.PREPARE, _S.EXECUTE, _S.VALIDATE, _S.COMPLETE, again=_TWICE),
        emits=frozenset({_C.INFERENCE, _C.CONSTRAINT, _C.VALIDATION, _C.ORCHESTRATION, _C.CANCELLATION}),
        recovers=frozenset({_C.TOOL, _C.CONSTRAINT, _C.VALIDATION}),
    ),
    Mode.PLAN: ModeRules(
        _path(_S.INIT, _S.PLAN, _S.PREPARE, _S.EXECUTE, _S.VALIDATE, _S.COMPLETE, again=_TWICE),
        emits=frozenset(Category),
        recovers=frozenset({_C.CONSTRAINT, _C.VALIDATION, _C.TOOL}),
    ),
    Mode.REDUNDANT: ModeRules(
        _path(_S.INIT, _S.PREPARE, _S.EXECUTE, _S.VALIDATE, _S.COMPLETE),
        emits=frozenset({_C.INFERENCE, _C.CONSTRAINT, _C.ORCHESTRATION, _C.CANCELLATION}),
        recovers=frozenset({_C.INFERENCE, _C.CONSTRAINT}),
    ),
}
"""ORCHESTRATION_ITERATION_LIMIT is why chat and structured emit that family as well: their tool loop has a bound."""


@dataclass(frozen=True, slots=True)
class Transition:
    """A run went from one state to the next."""

    before: State
    after: State
    attempt: int
    """How often it has come to EXECUTE."""
    reason: str


class Lifecycle:
    """Where one run is. `enter` is the only way from a state to another."""

    __slots__ = ("_follows", "attempt", "state")

    def __init__(self, mode: Mode) -> None:
        """At INIT."""
        self._follows = MODE_RULES[mode].follows
        self.state = State.INIT
        self.attempt = 0

    def enter(self, state: State, reason: str) -> Transition:
        """Go on to a state.

        Raises:
            AssertionError: the mode has no such way.
        """
        before = self.state
        allowed = state in (State.FAILED, State.CANCELLED) or state in self._follows.get(before, frozenset())
        if before.is_last or not allowed:
            raise AssertionError(f"a run does not go from {before} to {state}")
        if state is State.EXECUTE:
            self.attempt += 1
        self.state = state
        return Transition(before, state, self.attempt, reason)
