"""Forked runs: which calls of an earlier run stand before the event that a new run goes on from."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from fumehood_server.model.events import Event

MAX_CALLS = 10_000
"""Before the event that a run is forked at: what a fork holds in memory is some hundred bytes of each."""
PREFIX = "fork-"
_ID = re.compile(r"fork-[0-9a-f]{32}")
_RANDOM_BYTES = 16


def new_fork_id() -> str:
    """A run id that nobody chose, so that calls of no other run are looked up in forks."""
    return PREFIX + secrets.token_hex(_RANDOM_BYTES)


def is_fork_id(run_id: str) -> bool:
    """Whether it has that form."""
    return run_id.startswith(PREFIX) and _ID.fullmatch(run_id) is not None


@dataclass(slots=True, kw_only=True)
class RunForked(Event):
    """A run begins that goes on from an event of another. Its id is the event's."""

    TYPE: ClassVar[str] = "run_forked"
    source_run: str
    position: int
    """Of the last event that both share."""
    calls: int
    """That are answered from the record."""
    caller: str


@dataclass(slots=True, kw_only=True)
class OutcomeServed(Event):
    """A call of a forked run was answered from the record, and nothing ran. It is no event of either call."""

    TYPE: ClassVar[str] = "outcome_served"
    call_id: str
    """As it was asked for, or made."""
    source_call_id: str
    start_position: int
    """Of the recorded call's start and end."""
    end_position: int
    arguments_hash: str
    outcome: str
    """"OK", or the code of its error."""
    result_sha256: str
    """Of the recorded result. Empty where none was."""
    caller: str


@dataclass(frozen=True, slots=True)
class ForkCall:
    """A recorded call that a forked run is to give."""

    call_id: str
    tool: str
    arguments_hash: str
    """As it was asked for, before it was prepared or edited: 64 hex digits."""
    position: int
    """Of its start, or of the event that it was served by in a fork that is forked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """What the record has of a forked run."""

    run_id: str
    source_run: str
    calls: tuple[ForkCall, ...]
    """To be given, in the order of their positions."""
    later: frozenset[tuple[str, str]] = frozenset()
    """Tool and hash of the arguments of calls of the earlier run after the event, at most `MAX_CALLS`."""
    served: Mapping[str, str] = field(default_factory=dict)
    """What was given so far: the recorded call's id, by the id of the call that got its outcome."""
