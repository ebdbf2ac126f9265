"""Turns events of the journal into messages, and packs them into pages of bounded size."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fumehood.v1 import journal_service_pb2 as pb
from fumehood.v1.tool_pb2 import CallContext

from fumehood_server.journal.encoding import decode
from fumehood_server.journal.query import Found, Span, outcome_of
from fumehood_server.journal.store import Reader, StoredEvent

MAX_PAYLOAD_BYTES = 1024 * 1024
"""Of one payload. Longer ones are not sent."""

_CONTEXT = frozenset(CallContext.DESCRIPTOR.fields_by_name)
_DIGESTED = frozenset({"sha256", "size", "kept"})


def page_of(
    reader: Reader, found: Found, span: Span, *, payloads: bool, max_bytes: int
) -> tuple[list[pb.JournalEvent], Span | None]:
    """What was found, up to so many bytes but at least one event, and what of the span is left."""
    page: list[pb.JournalEvent] = []
    size = 0
    for event in found.events:
        message = event_message(event, reader if payloads else None)
        size += message.ByteSize()
        if page and size > max_bytes:
            return page, span.after(page[-1].position)
        page.append(message)
    return page, found.rest


def event_message(event: StoredEvent, reader: Reader | None) -> pb.JournalEvent:
    """One event, with its payloads where there is a reader to read them by."""
    fields = decode(event.body)
    data = fields["data"]
    message = pb.JournalEvent(
        position=event.position,
        type=event.type,
        sidecar_id=fields["sidecar"],
        number=fields["number"],
        call_id=fields["call_id"],
        tool=event.tool,
        plugin=event.plugin,
        caller=_text(data, "caller"),
        outcome=outcome_of(fields),
        digests=pb.EventDigests(
            arguments=_text(data, "arguments_hash"),
            plugin=_text(data, "plugin"),
            definition=_text(data, "definition"),
            configuration=_text(data, "configuration"),
            receipt=_text(data, "receipt"),
        ),
        payloads=_payloads(event.position, data, reader),
        body_json=event.body.decode(),
    )
    message.time.FromMicroseconds(event.time_us)
    context = {name: text for name, text in fields["context"].items() if name in _CONTEXT}
    if context:
        message.context.CopyFrom(CallContext(**context))
    return message


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


def _payloads(position: int, data: Mapping[str, Any], reader: Reader | None) -> Iterator[pb.EventPayload]:
    named = [(name, value) for name, value in data.items() if isinstance(value, dict) and value.keys() == _DIGESTED]
    parts: Sequence[bytes | None] = ()
    if named and reader is not None:
        parts = reader.payloads_of(position, max_bytes=MAX_PAYLOAD_BYTES)
    kept = {hashlib.sha256(part).hexdigest(): part for part in parts if part is not None}
    for name, value in named:
        payload = pb.EventPayload(name=name, sha256=value["sha256"], size_bytes=value["size"])
        if not value["kept"]:
            payload.state = pb.PAYLOAD_STATE_NOT_KEPT
        elif reader is None:
            payload.state = pb.PAYLOAD_STATE_NOT_ASKED
        elif value["sha256"] in kept:
            payload.state = pb.PAYLOAD_STATE_INCLUDED
            payload.data = kept[value["sha256"]]
        elif value["size"] > MAX_PAYLOAD_BYTES and parts:
            payload.state = pb.PAYLOAD_STATE_TOO_LONG
        else:
            payload.state = pb.PAYLOAD_STATE_REMOVED
        yield payload
