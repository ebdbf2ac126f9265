"""The states of a worker: which can follow which."""

from __future__ import annotations

import pytest
from fumehood_server.model.worker import WorkerState
from fumehood_server.workers.process.lifecycle import ImpossibleTransitionError, WorkerEvent, advance
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.sampled_from(WorkerEvent)))
def test_a_dead_worker_is_never_ready_without_a_start(events: list[WorkerEvent]) -> None:
    state = WorkerState.STARTING
    for event in events:
        try:
            after = advance(state, event)
        except ImpossibleTransitionError as error:
            assert (error.state, error.event) == (state, event)  # noqa: PT017 - one of the two outcomes
            continue
        if after is WorkerState.READY:
            assert state is WorkerState.STARTING
        if state is WorkerState.DEAD:
            assert after is WorkerState.BACKOFF
        state = after


def test_every_state_but_backoff_and_dead_can_exit() -> None:
    for state in (WorkerState.STARTING, WorkerState.READY, WorkerState.ENDING):
        assert advance(state, WorkerEvent.EXITED) is WorkerState.DEAD
    for state in (WorkerState.DEAD, WorkerState.BACKOFF):
        with pytest.raises(ImpossibleTransitionError):
            advance(state, WorkerEvent.EXITED)
