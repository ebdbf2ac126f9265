"""What the journal has of a run: how it ended, or what it goes on from after a crash."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import orjson

from fumehood_server.errors import JournalUnavailableError
from fumehood_server.journal.encoding import decode
from fumehood_server.journal.store import EventFilter, Reader, StoredEvent, StoreError, read_payload
from fumehood_server.model.call import CallError
from fumehood_server.model.run_events import (
    InferenceEnd,
    RunEnded,
    RunResumed,
    RunStarted,
    RunSteered,
    RunSteeringTaken,
    RunToolRefused,
)
from fumehood_server.orchestration.answers import answer_from_json, error_from_json, response_from_json
from fumehood_server.orchestration.engines.engine import InferenceAnswer, OfferedTool
from fumehood_server.orchestration.messages import Message, messages_from_json
from fumehood_server.orchestration.tool_offers import tools_from_document

if TYPE_CHECKING:
    from fumehood_server.orchestration.response import SystemResponse


_Value = TypeVar("_Value")

MAX_EVENTS = 10_000
"""Of one run. An inference makes two, a message from outside two more."""
MAX_BYTES = 64 * 1024 * 1024
"""Of its answers together."""

_TYPES = frozenset(
    each.TYPE for each in (RunStarted, RunResumed, InferenceEnd, RunToolRefused, RunSteered, RunSteeringTaken, RunEnded)
)


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """How an inference ended that is not tried again."""

    input_hash: str
    answer: InferenceAnswer | None
    error: CallError | None
    """None beside no answer: it is not kept."""


@dataclass(slots=True)
class Steering:
    """Messages that a run was given."""

    number: int
    kind: str
    messages: tuple[Message, ...]
    taken_by: str = ""
    """Name of the inference. Empty: none yet."""


@dataclass(slots=True)
class RecordedRun:
    """What there is of a run."""

    request_hash: str
    caller: str
    started_us: int
    request: Mapping[str, Any] | None = None
    """As `request_to_json` has it. None: it is not kept."""
    history: tuple[Message, ...] = ()
    """The session's, as the run was given it."""
    constrains: Mapping[str, bool] = field(default_factory=dict)
    """What its engine did: `schema`, `grammar`."""
    tools: tuple[OfferedTool, ...] = ()
    """What its models were offered."""
    mode: str = ""
    sidecar: str = ""
    """Who carries it out: the newest that has recorded its start, or that it goes on."""
    refused: set[tuple[str, int]] = field(default_factory=set)
    """Uses of tools that it was not offered, by inference and index."""
    answers: dict[str, RecordedAnswer] = field(default_factory=dict)
    """By their inferences' names."""
    steering: dict[int, Steering] = field(default_factory=dict)
    ended: bool = False
    response: SystemResponse | None = None
    """What its caller got. None beside `ended`: it is not kept."""
    is_cut: bool = False
    """Whether there is more of it than is read."""


class Reads(Protocol):
    """Reads of the journal beside the event loop: see `fumehood_server.journal.reads.JournalReads`."""

    async def run(self, read: Callable[[Reader], _Value]) -> _Value:
        """What `read` returns, on a thread. Raises StoreError."""


async def find_run(reads: Reads, request_id: str) -> RecordedRun | None:
    """The newest run of this id. None: there is none.

    Raises:
        JournalUnavailableError: it can't be read now, or what is there is not what a sidecar writes.
    """
    try:
        return await reads.run(lambda reader: _read(reader, request_id))
    except StoreError as exc:
        raise JournalUnavailableError(str(exc)) from exc
    except (KeyError, TypeError, ValueError) as exc:
        raise JournalUnavailableError(f"the record of the run can't be read: {type(exc).__name__}") from exc


def _read(reader: Reader, request_id: str) -> RecordedRun | None:
    events = reader.events(EventFilter(types=_TYPES, subjects=(request_id,)), limit=MAX_EVENTS)
    run: RecordedRun | None = None
    size = 0
    for event in events:
        fields = decode(event.body)
        data = fields["data"]
        if event.type == RunStarted.TYPE:
            run = _started(reader, event, data)
            run.sidecar = fields["sidecar"]
            continue
        if run is None:
            continue
        if event.type == RunResumed.TYPE:
            run.sidecar = fields["sidecar"]
        if run.sidecar != fields["sidecar"]:
            continue  # of one that was taken for dead, and came back
        payload = read_payload(reader, event)
        size += len(payload or b"")
        if size > MAX_BYTES:
            run.is_cut = True
            return run
        _add(run, event.type, data, payload)
    if run is not None and len(events) == MAX_EVENTS and not run.ended:
        run.is_cut = True
    return run


def _started(reader: Reader, event: StoredEvent, data: Mapping[str, Any]) -> RecordedRun:
    run = RecordedRun(data["request_hash"], data["caller"], event.time_us, mode=data["mode"])
    payload = read_payload(reader, event)
    if payload is not None:
        start = orjson.loads(payload)
        run.request, run.constrains = start["request"], start["constrains"]
        run.history = messages_from_json(start["history"])
    tools = reader.document(bytes.fromhex(data["tools"])) if data["tools"] else None
    if tools is not None:
        run.tools = tools_from_document(tools)
    return run


def _add(run: RecordedRun, kind: str, data: Mapping[str, object], payload: bytes | None) -> None:
    if kind == InferenceEnd.TYPE:
        if data["is_last"]:
            run.answers[str(data["name"])] = _answer(data, payload)
    elif kind == RunToolRefused.TYPE:
        run.refused.add((str(data["inference"]), int(str(data["index"]))))
    elif kind == RunSteered.TYPE:
        said = () if payload is None else messages_from_json(orjson.loads(payload))
        number = int(str(data["number"]))
        run.steering[number] = Steering(number, str(data["kind"]), said)
    elif kind == RunSteeringTaken.TYPE:
        numbers = data["numbers"]
        for number in numbers if isinstance(numbers, list) else ():
            run.steering[number].taken_by = str(data["name"])
    elif kind == RunEnded.TYPE:
        run.ended = True
        run.response = None if payload is None else response_from_json(payload)


def _answer(data: Mapping[str, object], payload: bytes | None) -> RecordedAnswer:
    input_hash = str(data["input_hash"])
    if payload is None:
        return RecordedAnswer(input_hash, None, None)
    if data["error_code"]:
        return RecordedAnswer(input_hash, None, error_from_json(orjson.loads(payload)))
    return RecordedAnswer(input_hash, answer_from_json(payload), None)
