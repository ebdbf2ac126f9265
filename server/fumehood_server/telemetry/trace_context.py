"""W3C Trace Context level 1: reads `traceparent` and `tracestate`, and decides what is sampled."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from fumehood_server.model.call import CallContext
from fumehood_server.model.trace import TraceContext

MAX_STATE_CHARS = 512
"""Of `tracestate`, which the specification asks everybody to hand on. A longer one is dropped."""

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_TRACE_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_SPAN_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
_STATE = re.compile(r"[\x20-\x7e]+")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_SAMPLED = 1
_RANDOM_BITS = 64

Metadata = Iterable[tuple[str, str | bytes]]
"""Of a gRPC request. Keys are in lower case."""


@dataclass(frozen=True, slots=True)
class Parent:
    """What a caller says of its own span. `is_sampled` None: it doesn't say."""

    trace_id: str
    span_id: str
    is_sampled: bool | None = None
    state: str = ""


def read_metadata(metadata: Metadata) -> Parent | None:
    """The parent that `traceparent` names. None: there is none, more than one, or one that is malformed."""
    parents: list[str] = []
    states: list[str] = []
    for key, value in metadata:
        if key == "traceparent" and isinstance(value, str):
            parents.append(value)
        elif key == "tracestate" and isinstance(value, str):
            states.append(value)
    found = _PARENT.fullmatch(parents[0]) if len(parents) == 1 else None
    if found is None or found[1] == _NO_TRACE or found[2] == _NO_SPAN:
        return None
    if found[4] is not None and parents[0].startswith("00"):  # only later versions may have more
        return None
    state = ",".join(states)
    valid = len(state) <= MAX_STATE_CHARS and _STATE.fullmatch(state) is not None
    return Parent(found[1], found[2], bool(int(found[3], 16) & _SAMPLED), state if valid else "")


def read_context(context: CallContext) -> Parent | None:
    """The parent that a request's own context names. None where its identifiers aren't W3C's."""
    trace_id, span_id = context.trace_id, context.span_id
    if _TRACE_ID.fullmatch(trace_id) is None or _SPAN_ID.fullmatch(span_id) is None:
        return None
    return None if trace_id == _NO_TRACE or span_id == _NO_SPAN else Parent(trace_id, span_id)


class TraceStarter:
    """Makes the trace context of each call: of the caller's trace, or of a new one.

    The caller's word on sampling stands; where it gives none, the ratio decides by the trace's identifier, so that all
    who know the ratio decide alike.
    """

    __slots__ = ("_below",)

    def __init__(self, sample_ratio: float) -> None:
        """`sample_ratio` is from 0 to 1."""
        self._below = round(sample_ratio * 2**_RANDOM_BITS)

    def start(self, method: str, metadata: Metadata, context: CallContext, *, in_stream: bool = False) -> TraceContext:
        """For one call. `in_stream`: the metadata are of a stream of many calls, so a call's own context comes first.

        Never raises: what is malformed is as if it weren't there.
        """
        if in_stream:
            parent = read_context(context) or read_metadata(metadata)
        else:
            parent = read_metadata(metadata) or read_context(context)
        random = os.urandom(32).hex()
        trace_id = random[:32] if parent is None else parent.trace_id
        sampled = None if parent is None else parent.is_sampled
        if sampled is None:
            sampled = int(trace_id[16:], 16) < self._below
        return TraceContext(
            trace_id=trace_id,
            parent_span_id="" if parent is None else parent.span_id,
            span_id=random[32:48],
            attempt_span_id=random[48:],
            is_sampled=sampled,
            state="" if parent is None else parent.state,
            method=method,
        )
