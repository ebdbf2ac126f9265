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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fumehood_evidence.errors import EvidenceError
from fumehood_evidence.note import Signer, signed

FORMAT = "fumehood-evidence/1"
MAX_BYTES = 256 * 1024 * 1024


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
        seal = signed(seal_text(self), [signer])
        return Bundle(self.subject, self.checkpoint, self.events, self.payloads, self.documents, self.earlier, seal)

    def to_json(self) -> str:
        """The one text of these data."""
        return _text({**_content(self), "seal": self.seal})


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


def seal_text(bundle: Bundle) -> str:
    """What a seal is signed over."""
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
