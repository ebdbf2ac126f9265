"""Digests of HTTP responses that the sidecar handed to a call: what a plugin says it got is compared with them."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import orjson
from fumehood_sdk.wire.recorded_values import RecordedValue

if TYPE_CHECKING:
    from hashlib import _Hash

KIND = "http"
_DIGEST_BYTES = 16
"""Of SHA-256: nobody gains by two responses of their own with one digest."""


class AnswerDigest:
    """Of one response, whose body comes in pieces: request method and URL as asked for, status, body."""

    __slots__ = ("_hash",)

    def __init__(self, request: str, status: int) -> None:
        """`request`: method and URL, with a space between."""
        head = request.encode(errors="surrogatepass")
        self._hash: _Hash = hashlib.sha256(b"%d %d " % (status, len(head)) + head)

    def update(self, piece: bytes) -> None:
        """Take the next piece of the body."""
        self._hash.update(piece)

    def digest(self) -> bytes:
        """Of what was taken."""
        return self._hash.digest()[:_DIGEST_BYTES]


def unconfirmed(values: Iterable[RecordedValue], answers: Mapping[bytes, int]) -> int:
    """How many HTTP responses among what a plugin says it got are none of those that its call was given."""
    left = Counter(answers)
    count = 0
    for value in values:
        if value.kind != KIND or not value.value_json:
            continue
        digest = _digest_of(value)
        if digest is None or not left[digest]:
            count += 1
        else:
            left[digest] -= 1
    return count


def _digest_of(value: RecordedValue) -> bytes | None:
    """None: it is no response, whatever the plugin says."""
    try:
        fields = orjson.loads(value.value_json)
        body = b64decode(fields["base64"]) if "base64" in fields else fields["text"].encode()
        answer = AnswerDigest(value.name, int(fields["status"]))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    answer.update(body)
    return answer.digest()
