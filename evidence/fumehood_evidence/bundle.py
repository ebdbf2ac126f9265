"""Bundles of evidence: what a log recorded of one call or one run, and what it takes to check that offline.

A bundle is an HTML page for people, in which the data lie as JSON. The page is made from the data alone, so a reader
makes it again and compares. The data:

    {"format", "subject": {"call_id"} or {"run_id"}, "checkpoint", "events": [{"position", "body", "proof"}],
     "payloads": {position: {part: bytes}}, "documents": {digest: bytes}, "earlier": [{"checkpoint", "proof"}], "seal"}

`body` is an event as the log hashed it; bytes are base64. `seal` is a note, signed with the log's key when the bundle
was made, over the SHA-256 of the rest: it holds the parts together.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fumehood_evidence.checkpoint import Checkpoint
from fumehood_evidence.errors import EvidenceError
from fumehood_evidence.merkle import leaf_hash, verify_consistency, verify_inclusion
from fumehood_evidence.note import Signature, Signer, Verifier, opened, signed

FORMAT = "fumehood-evidence/1"
MAX_BYTES = 256 * 1024 * 1024
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
class BundleEvent:
    """One event and the proof that the log has it."""

    position: int
    body: bytes
    proof: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Earlier:
    """A checkpoint that somebody was given before, and the proof that the log only grew since."""

    checkpoint: str
    proof: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle's data."""

    subject: Mapping[str, str]
    """`call_id` or `run_id`."""
    checkpoint: str
    """The signed note."""
    events: Sequence[BundleEvent]
    payloads: Mapping[int, Mapping[int, bytes]]
    documents: Mapping[str, bytes]
    """By SHA-256, 64 hex digits."""
    earlier: Sequence[Earlier] = ()
    seal: str = ""

    def sealed(self, signer: Signer) -> Bundle:
        """The same, sealed by the log's key."""
        seal = signed(_seal_text(self), [signer])
        return Bundle(self.subject, self.checkpoint, self.events, self.payloads, self.documents, self.earlier, seal)

    def to_json(self) -> str:
        """The one text of these data."""
        return _text({**_content(self), "seal": self.seal})


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


def parse(text: str) -> Bundle:
    """Read a bundle's JSON.

    Raises:
        EvidenceError: it is none, or not written as bundles are.
    """
    if len(text) > MAX_BYTES:
        raise EvidenceError(f"the bundle has more than {MAX_BYTES:,} bytes")
    try:
        data = json.loads(text)
        bundle = _read(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error) as exc:
        raise EvidenceError(f"the data are no bundle: {exc}") from exc
    if bundle.to_json() != text:
        raise EvidenceError("the data are not written as they were made")
    return bundle


def verify(bundle: Bundle, keys: Sequence[Verifier]) -> Found:
    """Check all that can be checked with the log's public keys.

    Raises:
        EvidenceError: something is not what the log signed. The message names it.
    """
    note = opened(bundle.checkpoint, keys)
    checkpoint = Checkpoint.parse(note.text)
    if checkpoint.origin not in {each.name for each in keys}:
        raise EvidenceError(f'the checkpoint is of another log, "{checkpoint.origin}"')
    if opened(bundle.seal, keys).text != _seal_text(bundle):
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
        _not_proven(bundle, note.signatures, calls, payloads, (*_taken_on_trust(bodies), *_absent(missing))),
    )


@dataclass(slots=True)
class _Payloads:
    """How many arguments and results a bundle has, and why it lacks others."""

    kept: int = 0
    digests: int = 0
    """By policy only their digests were recorded."""
    removed: int = 0
    """They were recorded, and are not kept any more."""
    nothing: int = 0
    """Calls of which by policy nothing was recorded."""


def _taken_on_trust(bodies: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the events only repeat: outcomes of another run, and what tools said of the world."""
    said = []
    served = sum(body.get("type") == "outcome_served" for body in bodies)
    if served:
        said.append(
            f"what {served} outcomes were that this run was given from the record of an earlier one: nothing ran for "
            "them here, and a file of evidence of each `source_call_id` shows them"
        )
    granted_with = sorted(
        {str(body["data"].get("granted_with")) for body in bodies if body.get("type") == "standing_approval_used"}
    )
    if granted_with:
        said.append(
            "who gave the standing approvals that let calls begin, and on what terms: a file of evidence of each of "
            f"these calls shows it: {', '.join(granted_with)}"
        )
    taken = [body["data"] for body in bodies if body.get("type") == "execute_values"]
    if taken:
        said.append("that what tools took from outside was so: their own processes said it, and it is recorded as said")
    unconfirmed = sum(number for data in taken if isinstance(number := data.get("unconfirmed"), int))
    if unconfirmed:
        said.append(f"that {unconfirmed} HTTP responses were as tools said: the sidecar gave them no such response")
    return said


def _absent(documents: Sequence[str]) -> list[str]:
    if not documents:
        return []
    return [f"what these documents say, which the events name and the file does not have: {', '.join(documents)}"]


def _not_proven(
    bundle: Bundle,
    signatures: Sequence[Signature],
    calls: Sequence[CallFound],
    payloads: _Payloads,
    more: Sequence[str],
) -> tuple[str, ...]:
    said = ["that the clock of the sidecar's machine was right"]
    if "run_id" in bundle.subject:
        said.append("that the run had no other calls: each call here is whole")
    if not any(each.time is not None for each in signatures):
        said.append("that the log showed everybody the same: no witness cosigned this checkpoint")
    if payloads.removed:
        why = "they were recorded, and are not kept any more"
        said.append(f"what {payloads.removed} arguments or results were: their digests are here, {why}")
    if payloads.digests:
        why = "by the operator's policy they were not recorded"
        said.append(f"what {payloads.digests} arguments or results were: their digests are here, {why}")
    if payloads.nothing:
        said.append(f"what {payloads.nothing} calls were given and returned: by policy nothing of it was recorded")
    said += more
    if any(not call.outcome for call in calls):
        said.append("how a call ended that had not ended yet")
    return tuple(said)


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


def _check_payloads(bundle: Bundle, bodies: Sequence[Mapping[str, Any]]) -> _Payloads:
    found = _Payloads()
    left = {position: dict(parts) for position, parts in bundle.payloads.items()}
    for event, body in zip(bundle.events, bodies, strict=True):
        found.nothing += body["data"].get("payloads") == "off"
        for part, name in enumerate((_PAYLOADS.get(body["type"], "result"),)):
            said = body["data"].get(name)
            if said is None:
                continue
            data = left.get(event.position, {}).pop(part, None)
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


def _seal_text(bundle: Bundle) -> str:
    digest = hashlib.sha256(_text(_content(bundle)).encode()).hexdigest()
    return f"{FORMAT}\n{digest}\n"


def _content(bundle: Bundle) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "subject": dict(bundle.subject),
        "checkpoint": bundle.checkpoint,
        "events": [
            {"position": each.position, "body": each.body.decode(), "proof": [_base64(step) for step in each.proof]}
            for each in bundle.events
        ],
        "payloads": {
            str(position): {str(part): _base64(data) for part, data in parts.items()}
            for position, parts in bundle.payloads.items()
        },
        "documents": {digest: _base64(data) for digest, data in bundle.documents.items()},
        "earlier": [
            {"checkpoint": each.checkpoint, "proof": [_base64(step) for step in each.proof]} for each in bundle.earlier
        ],
    }


def _read(data: Mapping[str, Any]) -> Bundle:
    if data["format"] != FORMAT:
        raise EvidenceError(f"the bundle's format is {data['format']}, and this reader knows {FORMAT}")
    subject = data["subject"]
    if len(subject) != 1 or not set(subject) <= {"call_id", "run_id"}:
        raise EvidenceError("the bundle is of no call and no run")
    return Bundle(
        subject,
        data["checkpoint"],
        [
            BundleEvent(int(each["position"]), each["body"].encode(), tuple(map(_bytes, each["proof"])))
            for each in data["events"]
        ],
        {
            int(position): {int(part): _bytes(text) for part, text in parts.items()}
            for position, parts in data["payloads"].items()
        },
        {digest: _bytes(text) for digest, text in data["documents"].items()},
        [Earlier(each["checkpoint"], tuple(map(_bytes, each["proof"]))) for each in data["earlier"]],
        data["seal"],
    )


def _text(data: Mapping[str, Any]) -> str:
    """Sorted, without spaces, in ASCII; `<` is escaped, since it lies in a page."""
    return json.dumps(data, sort_keys=True, separators=(",", ":")).replace("<", "\\u003c")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
