"""What spans are made of, in the exporter's thread. Times are Unix nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood_server.model.trace import TraceContext


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedCall:
    """One call: its spans are its own, that of its wait and that of its attempt."""

    trace: TraceContext
    call_id: str
    tool: str
    plugin: str
    worker_id: str
    code: str
    attempt: int
    began_ns: int
    dispatched_ns: int
    """0: it was sent to no worker."""
    ended_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedInference:
    """One try to have an engine answer."""

    trace: TraceContext
    """The run's."""
    session_id: str
    provider: str
    request_model: str
    response_model: str
    finish_reason: str
    input_tokens: int
    output_tokens: int
    code: str
    began_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """One run."""

    trace: TraceContext
    request_id: str
    session_id: str
    mode: str
    code: str
    began_ns: int
    ended_ns: int


Ended = EndedCall | EndedInference | EndedRun
