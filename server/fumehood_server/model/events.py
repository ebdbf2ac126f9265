"""What the journal records of calls, and what each event is about. `model.event_types` has the closed list.

Nobody changes one once it is made. They are not frozen all the same: two are made for each call, and that would take
half as long again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import orjson

from fumehood_server.model.call import CallError
from fumehood_server.model.tool import Payloads

if TYPE_CHECKING:
    from fumehood_sandbox import Policy, Receipt

    from fumehood_server.model.quotas import Charge


@dataclass(slots=True, kw_only=True)
class About:
    """What an event is about. Empty where it is about the sidecar itself."""

    call_id: str = ""
    run_id: str = ""
    """The caller's `request_id`: what its calls belong to."""
    tool: str = ""
    plugin: str = ""
    context: Mapping[str, str] = field(default_factory=dict)
    """The caller's correlation: those of `CallContext` that are known."""
    numbered: bool = True
    """False: it is about the call, and whoever records it does not count the call's events."""
    number: int = 0
    """How many events of the call were recorded so far: the journal counts on. All of a call's share this object."""
    charges: tuple[Charge, ...] = ()
    """What the call's start takes of quotas, and its end takes more."""


NOBODY = About()
_MAX_MESSAGE_CHARS = 512


@dataclass(slots=True)
class Digested:
    """Bytes that lie apart from the event."""

    sha256: str
    """64 hex digits."""
    size: int
    kept: bool
    """Whether they were put beside the event. Retention may have removed them since, by `PayloadsPruned`."""

    @classmethod
    def of(cls, data: bytes) -> Digested:
        """Of bytes that are put beside the event."""
        return cls(hashlib.sha256(data).hexdigest(), len(data), kept=True)


@dataclass(frozen=True, slots=True)
class Document:
    """What many events name by its SHA-256: a receipt, a definition, a policy. Kept for good."""

    digest: bytes
    data: bytes


@dataclass(slots=True)
class Event:
    """One of the classes below. Each is written with its `TYPE`, which is never renamed or reused."""

    TYPE: ClassVar[str]


@dataclass(slots=True, kw_only=True)
class SidecarStarted(Event):
    """The journal is open, and everything below comes from this sidecar until it stops."""

    TYPE: ClassVar[str] = "sidecar_started"
    version: str


@dataclass(slots=True, kw_only=True)
class SidecarStopped(Event):
    """It drained, and writes no more."""

    TYPE: ClassVar[str] = "sidecar_stopped"


@dataclass(slots=True, kw_only=True)
class ExecuteStart(Event):
    """A call is admitted. One that has effects is not sent to a worker before this and its attempt are on disk."""

    TYPE: ClassVar[str] = "execute_start"
    side_effects: str
    """The level of the tool, empty where no tool was found."""
    arguments_hash: str
    """SHA-256 of the arguments as canonical JSON (RFC 8785); of their text where they were not found valid."""
    arguments: Digested | None
    """The text that the tool gets, values of its plugin's secrets taken out. None: it is not recorded."""
    plugin: str
    """Digest of the plugin's files."""
    definition: str
    """Digest of the tool's definition."""
    configuration: str = ""
    """SHA-256 of the configuration in force, which is a document."""
    caller: str
    """By name where it has one, else its connection, as gRPC names it. A name has no colon."""
    authenticated_by: str = ""
    """How it is known who calls: see `model.caller.Authentication`. Empty: from before that was recorded."""
    payloads: str = Payloads.FULL.value
    """What is kept of its arguments and result. Where that is nothing, `arguments_hash` is empty."""
    asked_hash: str = ""
    """`arguments_hash` as the caller asked, where the plugin prepares the arguments or an approver has changed them."""
    again_until_us: int | None = None
    """POSIX time until which the call may run again if the sidecar dies, 0 where its caller set no deadline. None: it
    may not."""


@dataclass(slots=True, kw_only=True)
class ExecuteAttempt(Event):
    """An attempt is about to be sent to a worker. Only for calls that have effects, or are tried again."""

    TYPE: ClassVar[str] = "execute_attempt"
    attempt: int
    worker_id: str
    receipt: str


@dataclass(slots=True, kw_only=True)
class ExecuteValues(Event):
    """What an attempt took from outside, so that it can be replayed: see `model.taken_values`. Right after its end."""

    TYPE: ClassVar[str] = "execute_values"
    attempt: int = 1
    count: int
    left_out: int
    """Values that were not kept, since there are too many or they are too long."""
    values: Digested | None
    """None: they are not recorded."""
    unconfirmed: int = 0
    """HTTP responses among them that the call was not given by the sidecar: the plugin alone says so."""


@dataclass(slots=True, kw_only=True)
class Fault:
    """A call's error, as the caller got it."""

    code: str
    category: str
    retryable: bool
    message: str

    @classmethod
    def of(cls, error: CallError, payloads: Payloads = Payloads.FULL) -> Fault:
        """Of an error, its message cut: the whole of it is in the result. It is as private as that."""
        return cls(
            code=error.code.value,
            category=error.code.category.value,
            retryable=error.retryable,
            message=error.message[:_MAX_MESSAGE_CHARS] if payloads is Payloads.FULL else "",
        )


@dataclass(slots=True, kw_only=True)
class ExecuteRetry(Event):
    """An attempt failed, and another one follows: until then nothing of the call runs."""

    TYPE: ClassVar[str] = "execute_retry"
    attempt: int
    """How often the call was sent so far."""
    error: Fault
    outcome_unknown: bool
    """Whether an attempt so far may have had effects that nobody knows of."""
    worker_id: str
    delay_us: int


@dataclass(slots=True, kw_only=True)
class ExecuteTakenOver(Event):
    """A sidecar goes on with a call that another one left when it died. Only where several share the journal."""

    TYPE: ClassVar[str] = "execute_taken_over"
    from_sidecar: str


@dataclass(slots=True, kw_only=True)
class ExecuteEnd(Event):
    """A call has its one outcome."""

    TYPE: ClassVar[str] = "execute_end"
    error: Fault | None
    outcome_unknown: bool
    """Whether it may have had effects that nobody knows of. `ResolveCall` settles that."""
    result: Digested | None
    """What the caller got. None: it is not recorded."""
    attempts: int
    updates: int = 0
    worker_id: str = ""
    receipt: str = ""
    wall_us: int = 0
    queue_us: int = 0
    cpu_us: int | None = None
    peak_memory_bytes: int = 0
    source: str = ""
    """What measured both."""
    input_bytes: int = 0
    output_bytes: int = 0
    egress_sent_bytes: int = 0
    egress_received_bytes: int = 0
    requests: int = 0
    """HTTP requests, tunnels and requests for secrets that it made. Above a bound not each is an event."""
    cached_call_id: str = ""
    """The call whose result this was. Empty: it has its own, or that of another caller's call."""
    cached_age_us: int | None = None
    """How old that result was. None: it has its own."""


@dataclass(slots=True, kw_only=True)
class ExecuteCancelled(ExecuteEnd):
    """A call's one outcome: its caller, a deadline or the sidecar's end ended it."""

    TYPE: ClassVar[str] = "execute_cancelled"
    reason: str = ""
    """"caller", "deadline" or "shutdown"."""
    by: str = ""
    """Who cancelled it, as the journal calls callers. Empty: nobody did."""


@dataclass(slots=True, kw_only=True)
class CancelRequested(Event):
    """Somebody asked by `CancelCall` or `DisablePlugin` for the call's end, and nobody had before.

    A caller that has left its call asked for nothing.
    """

    TYPE: ClassVar[str] = "cancel_requested"
    by: str
    """Who asked, as the journal calls callers."""
    note: str


@dataclass(slots=True, kw_only=True)
class LimitReached(Event):
    """A limit or a deadline ended the call."""

    TYPE: ClassVar[str] = "limit_reached"
    limit: str
    """As `[limits.default]` names it; "timeout_s" for a deadline."""
    value: float | None
    usage: float | None
    unit: str
    bound: str
    """Whose deadline it was. Empty: it was none."""
    ended_by: str
    """By what means the call was ended, the mildest first: see `EscalationStep`."""


@dataclass(slots=True)
class EgressHop:
    """One connection of a request: a redirect leads to another one."""

    scheme: str
    host: str
    port: int
    address: str
    """What was dialled. Empty: nothing."""
    status: int


@dataclass(slots=True, kw_only=True)
class EgressRequested(Event):
    """A request through the broker, allowed or refused. Neither header fields nor bodies are recorded."""

    TYPE: ClassVar[str] = "egress"
    method: str
    url_sha256: str
    """Of the URL as it was asked for: path and query are in no other form here."""
    hops: tuple[EgressHop, ...]
    outcome: str
    """"done", "refused", "failed" or "cancelled"."""
    reason: str
    sent_bytes: int
    received_bytes: int
    wall_us: int


@dataclass(slots=True, kw_only=True)
class SecretRequested(Event):
    """A call asked for a secret."""

    TYPE: ClassVar[str] = "secret_requested"
    name: str
    refused: str
    """Why it did not get it. Empty: it did."""


@dataclass(slots=True, kw_only=True)
class OutcomeResolved(Event):
    """Somebody settled an unknown outcome."""

    TYPE: ClassVar[str] = "outcome_resolved"
    executed: bool
    by: str
    reason: str
    result: Digested | None


@dataclass(slots=True, kw_only=True)
class EventsLost(Event):
    """Events were not recorded since the database could not be written, and the operator lets calls go on then."""

    TYPE: ClassVar[str] = "events_lost"
    count: int
    reason: str


@dataclass(slots=True, kw_only=True)
class PayloadsPruned(Event):
    """Arguments and results up to an event were removed. The events stand."""

    TYPE: ClassVar[str] = "payloads_pruned"
    up_to: int
    """No event before this position has its arguments or result any more."""
    count: int


@dataclass(slots=True, kw_only=True)
class EventsPruned(Event):
    """Whole events were removed. Their hashes stand in the tree."""

    TYPE: ClassVar[str] = "events_pruned"
    up_to: int
    """An event before this position may be gone. Those of calls that were not settled yet are not."""
    until_us: int
    """POSIX time of the last event before that position."""
    removed: int
    """How many are gone, over all removals."""


def payload_of(data: bytes, payloads: Payloads) -> tuple[Digested | None, tuple[bytes, ...]]:
    """What an event says of arguments or a result, and what is put beside it."""
    if payloads is Payloads.FULL:
        return Digested.of(data), (data,)
    if payloads is Payloads.HASH:
        return Digested(hashlib.sha256(data).hexdigest(), len(data), kept=False), ()
    return None, ()


def receipt_document(receipt: Receipt) -> Document:
    """A sandbox's receipt, as events name it."""
    data = orjson.dumps(receipt, option=orjson.OPT_SORT_KEYS)
    return Document(hashlib.sha256(data).digest(), data)


def policy_document(policy: Policy) -> Document:
    """What a process may touch, as receipts name it."""
    data = policy.canonical_json()
    return Document(hashlib.sha256(data).digest(), data)
