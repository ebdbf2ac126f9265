"""Reads one call back from the journal: where it stands, and what its caller got."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import orjson
from fumehood_sandbox import Level, Receipt
from fumehood_sandbox.receipt import Layer

from fumehood_server.journal.encoding import decode
from fumehood_server.journal.entry import CallRow, CallState
from fumehood_server.journal.store import EventFilter, Reader, StoredEvent, read_payload
from fumehood_server.model.call import Block, CachedFrom, CallError, CallOutcome, Usage
from fumehood_server.model.events import ExecuteAttempt, OutcomeResolved
from fumehood_server.model.operation_events import PluginPinned
from fumehood_server.model.outcome_json import outcome_from_json
from fumehood_server.model.recorded import RecordedCall, RecordedState
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Payloads

_Value = TypeVar("_Value")
_MAX_PINS = 100_000
_STATES = {
    CallState.STARTED: RecordedState.RUNNING,
    CallState.DISPATCHED: RecordedState.RUNNING,
    CallState.ENDED: RecordedState.ENDED,
    CallState.UNKNOWN: RecordedState.UNKNOWN,
    CallState.RESOLVED: RecordedState.RESOLVED,
}


class JournalReader:
    """Reads beside the writer, on one thread: for one event loop."""

    def __init__(self, open_reader: Callable[[], Reader]) -> None:
        """`open_reader` is called on that thread, at the first need and after a failure."""
        self._open_reader = open_reader
        self._reader: Reader | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal-reader")

    async def run(self, read: Callable[[Reader], _Value]) -> _Value:
        """What `read` returns, on the thread.

        Raises:
            StoreError: the journal can't be read.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, read)

    def close(self) -> None:
        """End the thread once what it reads is read."""
        self._thread.submit(self._close)
        self._thread.shutdown()

    def _run(self, read: Callable[[Reader], _Value]) -> _Value:
        if self._reader is None:
            self._reader = self._open_reader()
        try:
            return read(self._reader)
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def read_call(reader: Reader, call_id: str) -> RecordedCall | None:
    """The newest call of this id, None where nothing is recorded of it.

    Raises:
        StoreError: the journal can't be read.
    """
    with reader.snapshot():  # retention may remove the events of a row that was just read
        return _read_call(reader, call_id)


def _read_call(reader: Reader, call_id: str) -> RecordedCall | None:
    row = reader.calls([call_id]).get(call_id)
    if row is None:
        return None
    events = reader.events_of_call(call_id)
    if row.end_position is None:
        return _open_call(row, events)
    end = next(each for each in events if each.position == row.end_position)
    settled = [each for each in events if each.type == OutcomeResolved.TYPE]
    said = settled[-1] if settled else end
    outcome, removed = _outcome(reader, end, said)
    return RecordedCall(
        call_id=call_id,
        tool=row.tool,
        arguments_hash=row.arguments_hash.hex(),
        state=_STATES[row.state],
        started_us=row.started_us,
        outcome=outcome,
        removed=removed,
        events=len(events),
        caller=_caller(decode(events[0].body)),
        sidecar=row.owner,
        run_id=row.run_id,
        plugin=end.plugin,
        context=decode(end.body)["context"],
        start_position=row.start_position,
        end_position=said.position,
        result_sha256=(decode(said.body)["data"]["result"] or {}).get("sha256", ""),
        payloads=Payloads(decode(events[0].body)["data"].get("payloads", "full")),
    )


def _open_call(row: CallRow, events: Sequence[StoredEvent]) -> RecordedCall:
    start = decode(events[0].body)
    return RecordedCall(
        call_id=row.call_id,
        tool=row.tool,
        arguments_hash=row.arguments_hash.hex(),
        state=_STATES[row.state],
        started_us=row.started_us,
        outcome=None,
        removed=False,
        events=len(events),
        caller=_caller(start),
        sidecar=row.owner,
        run_id=row.run_id,
        plugin=events[0].plugin,
        context=start["context"],
        start_position=row.start_position,
        payloads=Payloads(start["data"].get("payloads", "full")),
        attempts=sum(each.type == ExecuteAttempt.TYPE for each in events),
        code=(start["data"]["plugin"], start["data"]["definition"]),
    )


def _caller(start: Mapping[str, Any]) -> str:
    return str(start["data"].get("caller", ""))


def read_pins(reader: Reader) -> dict[str, str]:
    """The digest of each plugin as it was pinned last.

    Raises:
        StoreError: the journal can't be read.
    """
    pins = reader.events(EventFilter(types=frozenset({PluginPinned.TYPE})), limit=_MAX_PINS)
    return {each.plugin: str(decode(each.body)["data"]["digest"]) for each in pins}


def _outcome(reader: Reader, end: StoredEvent, said: StoredEvent) -> tuple[CallOutcome, bool]:
    """The outcome, and whether what was returned is no longer kept. `said` is the event that has the last word."""
    fields = decode(end.body)
    data = fields["data"]
    payload = read_payload(reader, said)
    bare = None if payload is None else _with_result(payload, fields)
    removed = bare is None
    bare = bare or _without_result(fields)
    return (
        CallOutcome(
            call_id=bare.call_id,
            tool=bare.tool,
            plugin=end.plugin,
            content=bare.content,
            details_json=bare.details_json,
            terminate=bare.terminate,
            error=bare.error,
            attempts=bare.attempts,
            usage=_usage(data) if data["attempts"] else None,
            receipt=_receipt(reader, data["receipt"]),
            coercions=bare.coercions,
            cached=_cached(data),
        ),
        removed,
    )


def _cached(data: Mapping[str, Any]) -> CachedFrom | None:
    age_us = data.get("cached_age_us")
    return None if age_us is None else CachedFrom(call_id=data["cached_call_id"], age_s=age_us / 1e6)


def _with_result(payload: bytes, fields: Mapping[str, Any]) -> CallOutcome | None:
    """None: taking out a secret that looks like JSON has left no JSON."""
    try:
        return outcome_from_json(
            payload, call_id=fields["call_id"], tool=fields["tool"], attempts=fields["data"]["attempts"]
        )
    except ValueError:
        return None


def _without_result(fields: Mapping[str, Any]) -> CallOutcome:
    fault, data = fields["data"]["error"], fields["data"]
    text = (
        "What the call returned is not kept." if fault is None else fault["message"] or f"It failed: {fault['code']}."
    )
    return CallOutcome(
        call_id=fields["call_id"],
        tool=fields["tool"],
        content=(Block(text=text),),
        error=None
        if fault is None
        else CallError(
            code=Code(fault["code"]),
            message=text,
            retryable=fault["retryable"],
            details={"outcome_unknown": True} if data["outcome_unknown"] else {},
        ),
        attempts=data["attempts"],
    )


def _usage(data: Mapping[str, Any]) -> Usage:
    return Usage(
        wall_s=data["wall_us"] / 1e6,
        queue_s=data["queue_us"] / 1e6,
        input_bytes=data["input_bytes"],
        output_bytes=data["output_bytes"],
        cpu_s=None if data["cpu_us"] is None else data["cpu_us"] / 1e6,
        peak_memory_bytes=data["peak_memory_bytes"],
        source=data["source"],
        egress_sent_bytes=data["egress_sent_bytes"],
        egress_received_bytes=data["egress_received_bytes"],
    )


def _receipt(reader: Reader, digest: str) -> Receipt | None:
    data = reader.document(bytes.fromhex(digest)) if digest else None
    if data is None:
        return None
    fields = orjson.loads(data)
    return Receipt(
        level=Level(fields["level"]),
        backend=fields["backend"],
        policy_digest=fields["policy_digest"],
        layers=tuple(Layer(**layer) for layer in fields["layers"]),
    )
