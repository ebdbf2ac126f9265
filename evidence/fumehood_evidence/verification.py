"""Verification of a bundle: proofs, signatures and seal, and that each call is whole and payloads are those named."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fumehood_evidence.bundle import Bundle, BundleEvent, seal_text
from fumehood_evidence.checkpoint import Checkpoint
from fumehood_evidence.errors import EvidenceError
from fumehood_evidence.merkle import leaf_hash, verify_consistency, verify_inclusion
from fumehood_evidence.not_proven import PayloadCounts, not_proven
from fumehood_evidence.note import Signature, Verifier, opened

_PAYLOADS = {
    "execute_start": "arguments",
    "execute_values": "values",
    "approval_requested": "arguments",
    "approval_decided": "arguments",
    "hook_decided": "seen",
    "question_asked": "question",
    "question_answered": "answer",
    "call_inference_start": "request",
    "call_inference_end": "answer",
    "run_started": "request",
    "inference_end": "answer",
    "run_steered": "messages",
    "run_ended": "response",
    "session_turn": "messages",
}
"""What lies beside events of a type; beside others it is their result."""
_PART = 0
"""Of a payload: events have one."""
_UNNUMBERED = frozenset(
    {
        "approval_requested",
        "approval_decided",
        "approval_withdrawn",
        "approval_expired",
        "standing_approval_granted",
        "standing_approval_revoked",
    }
)
"""Events about a call that others record than its sidecar: they have the number 0."""
_DOCUMENTS = ("configuration", "definition", "receipt")
"""What events name of documents."""
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class CallFound:
    """What a bundle shows of one call."""

    call_id: str
    tool: str
    events: int
    outcome: str
    """"OK", an error's code, or empty where it has not ended."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a bundle proves."""

    log: str
    """The log's name."""
    size: int
    """Events that the checkpoint covers."""
    signatures: tuple[Signature, ...]
    calls: tuple[CallFound, ...]
    events: int
    payloads: int
    documents: int
    earlier: int
    not_proven: tuple[str, ...] = field(default=())
    """What a reader might take for proven and is not."""


def verify(bundle: Bundle, keys: Sequence[Verifier]) -> Found:
    """Check all that can be checked with the log's public keys.

    Raises:
        EvidenceError: something is not what the log signed. The message names it.
    """
    note = opened(bundle.checkpoint, keys)
    checkpoint = Checkpoint.parse(note.text)
    if checkpoint.origin not in {each.name for each in keys}:
        raise EvidenceError(f'the checkpoint is of another log, "{checkpoint.origin}"')
    if opened(bundle.seal, keys).text != seal_text(bundle):
        raise EvidenceError("the seal is over other data: something was changed, added, left out or moved")
    _check_order(bundle.events)
    bodies = []
    for event in bundle.events:
        verify_inclusion(leaf_hash(event.body), event.position, checkpoint.size, event.proof, checkpoint.root)
        bodies.append(_decoded(event))
    for earlier in bundle.earlier:
        before = Checkpoint.parse(opened(earlier.checkpoint, keys).text)
        verify_consistency(before.size, before.root, checkpoint.size, checkpoint.root, earlier.proof)
    calls = _check_calls(bundle, bodies)
    payloads = _check_payloads(bundle, bodies)
    missing = _check_documents(bundle, bodies)
    return Found(
        checkpoint.origin,
        checkpoint.size,
        note.signatures,
        calls,
        len(bodies),
        payloads.kept,
        len(bundle.documents),
        len(bundle.earlier),
        not_proven(
            bundle,
            bodies,
            note.signatures,
            payloads,
            absent=missing,
            all_ended=all(call.outcome for call in calls),
        ),
    )


def _check_order(events: Sequence[BundleEvent]) -> None:
    positions = [event.position for event in events]
    if not positions:
        raise EvidenceError("the bundle has no events")
    if positions != sorted(set(positions)):
        raise EvidenceError("the events are not in the order of the log")


def _decoded(event: BundleEvent) -> dict[str, Any]:
    try:
        body = json.loads(event.body)
    except (ValueError, RecursionError) as exc:
        raise EvidenceError(f"record {event.position} is no event") from exc
    if not isinstance(body, dict) or not isinstance(body.get("data"), dict):
        raise EvidenceError(f"record {event.position} is no event")
    return body


def _check_calls(bundle: Bundle, bodies: Sequence[Mapping[str, Any]]) -> tuple[CallFound, ...]:
    """Each call is whole: its events are numbered from 1 without a gap."""
    name, value = next(iter(bundle.subject.items()))
    calls: dict[str, list[Mapping[str, Any]]] = {}
    for event, body in zip(bundle.events, bodies, strict=True):
        if body.get(name) != value:
            raise EvidenceError(f"record {event.position} is not of {name} {value}")
        call_id = str(body.get("call_id", ""))
        if call_id and body["type"] in _UNNUMBERED and body.get("number") == 0:
            continue
        if call_id:
            calls.setdefault(call_id, []).append(body)
            if body.get("number") != len(calls[call_id]):
                raise EvidenceError(f"the call {call_id} lacks its event number {len(calls[call_id])}")
    return tuple(
        CallFound(call_id, str(events[0].get("tool")), len(events), _outcome(events))
        for call_id, events in calls.items()
    )


def _outcome(events: Sequence[Mapping[str, Any]]) -> str:
    for body in events:
        if body["type"] in {"execute_end", "execute_cancelled"}:
            error = body["data"].get("error")
            return "OK" if error is None else str(error.get("code"))
    return ""


def _check_payloads(bundle: Bundle, bodies: Sequence[Mapping[str, Any]]) -> PayloadCounts:
    found = PayloadCounts()
    left = {position: dict(parts) for position, parts in bundle.payloads.items()}
    for event, body in zip(bundle.events, bodies, strict=True):
        found.nothing += body["data"].get("payloads") == "off"
        name = _PAYLOADS.get(body["type"], "result")
        said = body["data"].get(name)
        if said is None:
            continue
        data = left.get(event.position, {}).pop(_PART, None)
        if data is None:
            found.removed += bool(said.get("kept"))
            found.digests += not said.get("kept")
        elif hashlib.sha256(data).hexdigest() != said.get("sha256"):
            raise EvidenceError(f"the {name} of record {event.position} are not those that it names")
        else:
            found.kept += 1
    if any(left.values()):
        raise EvidenceError("the bundle has arguments or results that no event names")
    return found


def _check_documents(bundle: Bundle, bodies: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns those that are named and not there."""
    texts = {text for body in bodies for text in body["data"].values() if isinstance(text, str)}
    policies = policies_of(bundle.documents.values())
    named = {text.removeprefix("sha256:") for text in texts} | policies
    for digest, data in bundle.documents.items():
        if hashlib.sha256(data).hexdigest() != digest:
            raise EvidenceError(f"the document {digest} is not the one that the events name")
        if digest not in named:
            raise EvidenceError(f"the document {digest} is named by no event and no receipt")
    wanted = {
        f"{name} {text.removeprefix('sha256:')}"
        for body in bodies
        for name in _DOCUMENTS
        if isinstance(text := body["data"].get(name), str) and text
    }
    wanted |= {f"policy {digest}" for digest in policies}
    return sorted(each for each in wanted if each.rpartition(" ")[2] not in bundle.documents)


def policies_of(documents: Iterable[bytes]) -> set[str]:
    """Digests of the sandbox policies that the receipts among these documents carry out, in hexadecimal."""
    found: set[str] = set()
    for data in documents:
        try:
            receipt = json.loads(data)
        except ValueError:
            continue
        text = receipt.get("policy_digest") if isinstance(receipt, dict) else None
        if isinstance(text, str) and _SHA256.fullmatch(digest := text.removeprefix("sha256:")):
            found.add(digest)
    return found
