"""The hash by which two JSON texts are known to say the same: SHA-256 of canonical JSON (RFC 8785)."""

from __future__ import annotations

import hashlib
from typing import Any

import rfc8785


def canonical_sha256(value: Any, text: str) -> str:  # noqa: ANN401 - any JSON value
    """64 hex digits. `text` is what the value was read from.

    RFC 8785 has no form for whole numbers beyond 2^53, nor for halves of surrogate pairs: what holds one is known by
    its text as it stands.
    """
    try:
        data = rfc8785.dumps(value)
    except (ValueError, RecursionError, rfc8785.CanonicalizationError):
        data = text.encode(errors="surrogatepass")
    return hashlib.sha256(data).hexdigest()
