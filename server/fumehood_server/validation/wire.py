"""Frames between the sidecar and the validator process: a document one way, a verdict back, on a stream socket.

The verdict comes from a process that has read hostile text by native code, so it is bounded and checked as well.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from fumehood_server.model.coercion import Coercion
from fumehood_server.validation.documents import Accepted, Document, Flaw, Kind, Rejected, Verdict

REQUEST_HEAD = struct.Struct(">B?III")
"""Kind, whether a hash is wanted, then the bytes of digest, schema and text, which follow."""

ANSWER_HEAD = struct.Struct(">BI")
"""Status, then the bytes that follow."""

MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""Arguments are 3 MiB at most (`max_arguments_bytes`), and grow by the defaults that are filled in."""

_COERCIONS_HEAD = struct.Struct(">I")
"""The bytes of what was mended, which come before a text."""

_UNCHANGED = 0
_TEXT = 1
_REJECTED = 2
_FAULT = 3
_HASH_BYTES = 64
_HEX = frozenset("0123456789abcdef")
_MAX_REJECTED_BYTES = 64 * 1024
_FAULT_KEYS = frozenset({"pointer", "rule", "message"})


class ValidatorFaultError(Exception):
    """A fault of ours in the validator process. The message is its traceback, without values."""


class BrokenAnswerError(Exception):
    """The process answered with what is no verdict."""


def encode_document(document: Document) -> bytes:
    """The frame of a document."""
    digest, schema, text = (_bytes(each) for each in (document.digest, document.schema_json, document.text))
    return b"".join(
        (REQUEST_HEAD.pack(document.kind, document.hashed, len(digest), len(schema), len(text)), digest, schema, text)
    )


def decode_document(kind: int, digest: bytes, schema: bytes, text: bytes, *, hashed: bool) -> Document:
    """The document of a frame's parts."""
    return Document(Kind(kind), _text(digest), _text(schema), _text(text), hashed)


def encode_verdict(document: Document, verdict: Verdict) -> bytes:
    """The frame of a verdict. A text that is handed on as it is isn't sent again."""
    if isinstance(verdict, Rejected):
        # Not as ASCII: a fault's 600 characters would have 7 KB each, and 20 of them be more than an answer may have.
        body = _bytes(json.dumps([verdict.flaw, verdict.problem, verdict.faults], ensure_ascii=False))
        return ANSWER_HEAD.pack(_REJECTED, len(body)) + body
    body = verdict.canonical_sha256.encode().ljust(_HASH_BYTES)
    if verdict.text is document.text:
        return ANSWER_HEAD.pack(_UNCHANGED, len(body)) + body
    coercions = json.dumps([(each.pointer, each.rule, each.message) for each in verdict.coercions]).encode()
    body += _COERCIONS_HEAD.pack(len(coercions)) + coercions + _bytes(verdict.text)
    return ANSWER_HEAD.pack(_TEXT, len(body)) + body


def encode_fault(text: str) -> bytes:
    """The frame that stands in a verdict's place."""
    body = _bytes(text)
    return ANSWER_HEAD.pack(_FAULT, len(body)) + body


def decode_verdict(document: Document, status: int, body: bytes) -> Verdict:
    """The verdict of a frame.

    Raises:
        BrokenAnswerError: it is none.
        ValidatorFaultError: the process failed.
    """
    if status == _FAULT:
        raise ValidatorFaultError(body[:_MAX_REJECTED_BYTES].decode(errors="replace"))
    try:
        if status == _UNCHANGED and len(body) == _HASH_BYTES:
            return Accepted(document.text, _hash(body))
        if status == _TEXT:
            coercions, text = _coercions(body)
            return Accepted(text.decode(), _hash(body), coercions)
        if status == _REJECTED and len(body) <= _MAX_REJECTED_BYTES:
            return _rejected(json.loads(body))
    except (ValueError, TypeError, AttributeError, RecursionError, struct.error) as exc:
        raise BrokenAnswerError from exc
    raise BrokenAnswerError


def _hash(body: bytes) -> str:
    text = body[:_HASH_BYTES].decode("ascii").rstrip()
    if text and (len(text) != _HASH_BYTES or not _HEX.issuperset(text)):
        raise BrokenAnswerError
    return text


def _coercions(body: bytes) -> tuple[tuple[Coercion, ...], bytes]:
    """What was mended, and the text after it."""
    start = _HASH_BYTES + _COERCIONS_HEAD.size
    end = start + _COERCIONS_HEAD.unpack_from(body, _HASH_BYTES)[0]
    if end - start > _MAX_REJECTED_BYTES or end > len(body):
        raise BrokenAnswerError
    found = json.loads(body[start:end])
    if not all(isinstance(field, str) for each in found for field in each):
        raise BrokenAnswerError
    return tuple(Coercion(*each) for each in found), body[end:]


def _rejected(fields: Any) -> Rejected:  # noqa: ANN401 - any JSON
    flaw, problem, faults = fields
    strings = [problem, *(each for fault in faults for each in fault.values())] if isinstance(faults, list) else [None]
    if not all(isinstance(each, str) for each in strings) or any(fault.keys() != _FAULT_KEYS for fault in faults):
        raise BrokenAnswerError
    return Rejected(Flaw(flaw), problem, tuple(faults))


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _text(data: bytes) -> str:
    return data.decode(errors="surrogatepass")
