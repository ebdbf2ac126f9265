"""What is written for one event: its body as it is hashed, the columns it is found by, and what goes with it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from fumehood_server.model.approval_changes import Change
from fumehood_server.model.approvals import Approval, ApprovalRefusedError
from fumehood_server.model.events import Document
from fumehood_server.model.quotas import Charge, Exceeded
from fumehood_server.model.standing import Standing
from fumehood_server.model.standing_changes import StandingChange


class CallState(IntEnum):
    """Where a call stands, as the journal keeps it."""

    STARTED = 1
    """Admitted. Nothing that has effects was sent to a worker."""
    DISPATCHED = 2
    """It has effects, and may have had them."""
    ENDED = 3
    """It has its outcome."""
    UNKNOWN = 4
    """It ended, and nobody knows whether it had its effects."""
    RESOLVED = 5
    """It was unknown, and somebody has settled it."""


@dataclass(slots=True, kw_only=True)
class CallRow:
    """One call: the newest of its id. Mutable, since a batch may hold both ends of a call."""

    call_id: str
    run_id: str
    session_id: str
    tool: str
    arguments_hash: bytes
    has_effects: bool
    started_us: int
    state: CallState = CallState.STARTED
    start_position: int = 0
    end_position: int | None = None
    owner: str = ""
    """The sidecar that runs it, where several share the journal."""


@dataclass(slots=True)
class CallChange:
    """What an event says of a call that began before."""

    call_id: str
    state: CallState


@dataclass(frozen=True, slots=True)
class CallClaim:
    """That a sidecar goes on with a call which another one left when it died."""

    call_id: str
    owner: str
    """Who left it: the claim holds only while that one is dead."""
    events: int
    """How many events of the call there are, so that the claim's number is the next one."""


class RunStep(IntEnum):
    """What an event says of who carries a run out."""

    START = 1
    RESUME = 2
    END = 3


@dataclass(frozen=True, slots=True)
class RunClaim:
    """That a sidecar carries a run out: begins it, goes on with it, or has ended it."""

    run_id: str
    step: RunStep
    owner: str = ""
    """Of a resumption, who carried it out before: the claim holds only while that one is dead, or is the claimant."""


@dataclass(slots=True)
class Entry:
    """One event to be written."""

    body: bytes
    """The event as JSON: what the tree's leaf is the hash of."""
    time_us: int
    """POSIX time in microseconds."""
    type: str
    subject: str
    """The call that it is about, else the run, else empty."""
    tool: str
    plugin: str
    call: CallRow | CallChange | CallClaim | None = None
    payloads: tuple[bytes, ...] = ()
    """What one event speaks of by SHA-256, and retention may remove: arguments, a result, updates."""
    documents: tuple[Document, ...] = ()
    of_call: bool = False
    """Whether it is one of the numbered events of the call that it is about: who runs that call records them."""
    run: RunClaim | None = None
    """What it says of a run: several sidecars on one journal don't carry out the same one."""
    approval: Change | None = None
    """What it says of an approval."""
    settled: Approval | None = None
    """That approval after it was appended."""
    standing: StandingChange | None = None
    """What it says of a standing approval."""
    settled_standing: Standing | None = None
    """That one after it was appended."""
    requires: Entry | None = None
    """An earlier one of the same group, without which it is not appended."""
    refusal: ApprovalRefusedError | None = None
    """Why it was not appended, where the approval is why."""
    charges: tuple[Charge, ...] = ()
    """What it counts towards quotas: a start only where each has that left, and anything else in any case."""
    asks: bool = False
    """Whether it is the start of an inference."""
    releases: bool = False
    """Whether its call may hold places of quotas, which end with it."""
    exceeded: Exceeded | None = None
    """Why it was not appended, where a quota is why."""
    refused: str = ""
    """Why it was not appended: see `Store.write`."""

    @property
    def size(self) -> int:
        """About how many bytes it holds until it is written."""
        return len(self.body) + sum(map(len, self.payloads)) + 512


def filed(text: str) -> str:
    """A text as a column holds it: PostgreSQL takes neither NUL nor halves of surrogate pairs."""
    return text if text.isprintable() else text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
