"""HMAC-SHA256 signatures of webhooks in the form of Standard Webhooks 1.0 (standardwebhooks.com)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping

from fumehood_server.errors import FumehoodError

TOLERANCE_S = 300
"""How far a message's time may be from the machine's, either way."""
MIN_KEY_BYTES = 24
"""The form asks for 24 to 64."""

_PREFIX = b"whsec_"
_VERSION = "v1,"
_MAX_SIGNATURES = 16
"""Senders that change their key sign by both for a while."""
_ID = re.compile(r"[!-\-/-~]{1,256}")
"""Visible ASCII but the dot, which stands between the signed parts."""
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


class SecretUnfitError(FumehoodError):
    """A secret is no key for signatures. The operator must replace it. Its value is in none of the texts."""


class SignatureRefusedError(Exception):
    """A message is not signed as it must be. Whoever sent it is not told why."""


def signing_key(secret: bytes) -> bytes:
    """The key that a secret stands for: after `whsec_` in Base64, as the form writes it, else its bytes.

    Raises:
        SecretUnfitError: it is malformed, or too short.
    """
    key = secret
    if secret.startswith(_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error as exc:
            raise SecretUnfitError("it begins with whsec_ and is no Base64 after that") from exc
    if len(key) < MIN_KEY_BYTES:
        raise SecretUnfitError(f"it has {len(key)} bytes, and {MIN_KEY_BYTES} are the least that sign well")
    return key


def sign(key: bytes, message_id: str, timestamp_s: int, body: bytes) -> str:
    """The value of `webhook-signature`."""
    digest = hmac.new(key, f"{message_id}.{timestamp_s}.".encode() + body, hashlib.sha256).digest()
    return _VERSION + base64.b64encode(digest).decode()


def check_time(headers: Mapping[str, str], now_s: float) -> None:
    """See whether a message could be a fresh one, before the key is read.

    Raises:
        SignatureRefusedError: a header is missing or malformed, or the time is too far off.
    """
    message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not _ID.fullmatch(message_id) or not _TIMESTAMP.fullmatch(timestamp) or "webhook-signature" not in headers:
        raise SignatureRefusedError
    if abs(int(timestamp) - now_s) > TOLERANCE_S:
        raise SignatureRefusedError


def check_signature(key: bytes, headers: Mapping[str, str], body: bytes) -> str:
    """The message's id, if one of its signatures holds. Call `check_time` first.

    Raises:
        SignatureRefusedError: none holds.
    """
    message_id = headers["webhook-id"]
    # Numbers are signed as they are written: one with zeros before it is another text.
    digest = hmac.new(key, f"{message_id}.{headers['webhook-timestamp']}.".encode() + body, hashlib.sha256).digest()
    wanted = _VERSION.encode() + base64.b64encode(digest)
    given = headers["webhook-signature"].encode("latin-1", "replace").split(b" ", _MAX_SIGNATURES)
    if not any(hmac.compare_digest(each, wanted) for each in given[:_MAX_SIGNATURES]):
        raise SignatureRefusedError
    return message_id


__all__ = [
    "MIN_KEY_BYTES",
    "TOLERANCE_S",
    "SecretUnfitError",
    "SignatureRefusedError",
    "check_signature",
    "check_time",
    "sign",
    "signing_key",
]
