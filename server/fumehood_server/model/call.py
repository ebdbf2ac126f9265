"""One call of a tool: its request, its progress updates, its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from fumehood_server.model.caller import ANONYMOUS, Caller

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fumehood_sandbox import Receipt

    from fumehood_server.model.coercion import Coercion
    from fumehood_server.model.taxonomy import Code
    from fumehood_server.model.trace import TraceContext


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """Correlation identifiers of a call, from the caller, for every log line of the call. Empty means unknown."""

    request_id: str = ""
    session_id: str = ""
    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str = ""
    turn_id: str = ""
    step_name: str = ""
    caused_by: str = ""

    def given(self) -> dict[str, str]:
        """Those that aren't empty, by their names."""
        return {name: value for name in _CONTEXT if (value := getattr(self, name))}


_CONTEXT = tuple(each.name for each in fields(CallContext))


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """One admitted call."""

    call_id: str
    is_named: bool = False
    """Whether the caller chose the id, so that the call may be a repetition of another."""
    tool: str
    arguments_json: str
    context: CallContext
    timeout_s: float | None
    """The request's own timeout. None: none."""
    caller_deadline: float | None
    """The gRPC deadline on the event loop's clock. None: none."""
    max_attempts: int = 0
    """Most attempts, of a call that may run again. 0: what the operator has as the default."""
    again_after_crash: bool = False
    """Whether it may run again where the sidecar dies before it has an outcome."""
    caller: str = ""
    """Who calls, as the journal records it: by name where it has one, else its connection, as gRPC names it."""
    identity: Caller = ANONYMOUS
    """Who calls, and how it was authenticated."""
    return_if_approval_required: bool = False
    """Whether it is answered at once where it would wait for an approval."""
    continues: bool = False
    """Whether it goes on when its caller goes away."""
    takes_questions: bool = False
    """Whether somebody reads its stream who answers what the tool asks."""
    trace: TraceContext | None = None
    """None: calls are not traced."""


@dataclass(frozen=True, slots=True)
class Annotations:
    """What a tool says of a block for its use. Hints, which nothing here follows."""

    audience: tuple[str, ...] = ()
    """"user", "assistant" or both. Empty: it doesn't say."""
    priority: float | None = None
    """From 0, optional, to 1, required."""
    last_modified: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """One block of content: text, or bytes with a media type."""

    text: str | None = None
    data: bytes | None = None
    media_type: str = ""
    """Of the bytes; of a text, where the tool says one."""
    resource_uri: str = ""
    """Of the resource that it holds or, in a link, names. Empty: none."""
    annotations: Annotations | None = None

    @property
    def length(self) -> int:
        """Characters and bytes of it, roughly: for what is done otherwise with large ones."""
        return len(self.text or self.data or "") + len(self.resource_uri)

    @property
    def size_bytes(self) -> int:
        """What limits count of it: text in UTF-8, bytes, and the URI and time that are said of it."""
        size = len((self.text or "").encode(errors="surrogatepass")) if self.data is None else len(self.data)
        if self.resource_uri:
            size += len(self.resource_uri.encode(errors="surrogatepass"))
        if self.annotations is not None:
            size += len(self.annotations.last_modified.encode(errors="surrogatepass"))
        return size


@dataclass(frozen=True, slots=True, kw_only=True)
class CallUpdate:
    """Progress of a tool that is still running."""

    message: str
    progress: float | None = None
    total: float | None = None
    data_json: str = ""
    sequence: int = 0
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallError:
    """Why a call failed."""

    code: Code
    message: str
    retryable: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)
    caused_by: CallError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRetry:
    """An attempt failed, and another one follows."""

    attempt: int
    """How often the call was sent so far."""
    error: CallError
    """Without its details and its cause, which can be large."""
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CallApproval:
    """A call waits for a person."""

    approval_id: str
    tool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallQuestion:
    """A call's tool asks whoever made the call something, and waits."""

    question_id: str
    tool: str
    message: str
    schema_json: str
    """What is to be filled in. Empty: nothing is."""
    until: float
    """When it counts as put aside, on the clock of `time.monotonic`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a call used."""

    wall_s: float
    queue_s: float
    input_bytes: int
    output_bytes: int
    cpu_s: float | None = None
    """Processor time, user and system. None where it was not measured."""
    peak_memory_bytes: int = 0
    """0 where it was not measured."""
    source: str = ""
    """What measured both: a cgroup or /proc."""
    egress_sent_bytes: int = 0
    """On the network, heads and bodies."""
    egress_received_bytes: int = 0
    requests: int = 0
    """HTTP requests, tunnels and requests for secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedFrom:
    """Where a result came from that the sidecar had kept."""

    call_id: str
    """The call that the tool ran for. Empty: it was another caller's."""
    age_s: float
    """Since that call's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """How a call ended. Exactly one for each admitted call."""

    call_id: str
    tool: str
    plugin: str = ""
    """Name of the plugin that the tool is of, where it is known."""
    content: tuple[Block, ...] = ()
    details_json: str = ""
    terminate: bool = False
    error: CallError | None = None
    attempts: int = 0
    usage: Usage | None = None
    receipt: Receipt | None = None
    recorded_call_id: str = ""
    """The call of an earlier run that this is the outcome of. Empty: it is its own."""
    coercions: tuple[Coercion, ...] = ()
    """What was mended of the arguments."""
    cached: CachedFrom | None = None
    """None: the tool ran for this call, or nothing did."""
