"""W3C trace context of one call: the identifiers of its spans, made when it is admitted."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceContext:
    """Lower-case hexadecimal identifiers, 32 digits of a trace and 16 of a span, never all zeros."""

    trace_id: str
    parent_span_id: str
    """The caller's span. Empty: the call begins its trace."""
    span_id: str
    """Of the call in the sidecar."""
    attempt_span_id: str
    """Of its attempt at a worker: the parent of what the plugin does."""
    is_sampled: bool
    state: str
    """The caller's `tracestate`, handed on as it came. May be empty."""
    method: str
    """The gRPC method that brought the call. Empty: a run has made it."""

    def child(self) -> TraceContext:
        """Of a call that is made within this."""
        random = os.urandom(16).hex()
        return replace(self, parent_span_id=self.span_id, span_id=random[:16], attempt_span_id=random[16:], method="")

    @property
    def traceparent(self) -> str:
        """The header field that names the attempt as parent."""
        return f"00-{self.trace_id}-{self.attempt_span_id}-{'01' if self.is_sampled else '00'}"
