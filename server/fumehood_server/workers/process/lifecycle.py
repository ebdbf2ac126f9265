"""Where a worker stands, and the one place that decides where it goes from there."""

from __future__ import annotations

from enum import Enum, auto

from fumehood_server.errors import FumehoodError
from fumehood_server.model.worker import WorkerState


class WorkerEvent(Enum):
    """What moves a worker from one state to the next."""

    BECAME_READY = auto()
    """It sent `Ready` and was accepted."""
    CONDEMNED = auto()
    """It gets no new calls and is to end: idle, retired, at fault, or shut down."""
    EXITED = auto()
    """Its process is gone."""
    START_FAILED = auto()
    """It died before it served anything; a new start waits."""
    RESTARTED = auto()
    """The wait is over and somebody called."""


class ImpossibleTransitionError(FumehoodError):
    """An event came that the state can't have. We must mend the sidecar."""

    def __init__(self, state: WorkerState, event: WorkerEvent) -> None:
        """Keep both."""
        super().__init__(f"a worker that is {state} can't have {event.name}")
        self.state = state
        self.event = event


_NEXT = {
    (WorkerState.STARTING, WorkerEvent.BECAME_READY): WorkerState.READY,
    (WorkerState.STARTING, WorkerEvent.CONDEMNED): WorkerState.ENDING,
    (WorkerState.STARTING, WorkerEvent.EXITED): WorkerState.DEAD,
    (WorkerState.READY, WorkerEvent.CONDEMNED): WorkerState.ENDING,
    (WorkerState.READY, WorkerEvent.EXITED): WorkerState.DEAD,
    # A second reason to end changes nothing.
    (WorkerState.ENDING, WorkerEvent.CONDEMNED): WorkerState.ENDING,
    (WorkerState.ENDING, WorkerEvent.EXITED): WorkerState.DEAD,
    (WorkerState.DEAD, WorkerEvent.START_FAILED): WorkerState.BACKOFF,
    (WorkerState.BACKOFF, WorkerEvent.START_FAILED): WorkerState.BACKOFF,
    (WorkerState.BACKOFF, WorkerEvent.RESTARTED): WorkerState.STARTING,
}


def advance(state: WorkerState, event: WorkerEvent) -> WorkerState:
    """The state after `event`.

    Raises:
        ImpossibleTransitionError: the state can't have that event.
    """
    try:
        return _NEXT[state, event]
    except KeyError:
        raise ImpossibleTransitionError(state, event) from None
