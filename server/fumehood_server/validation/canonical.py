"""The hash by which two JSON texts are known to say the same: SHA-256 of canonical JSON (RFC 8785)."""

from __future__ import annotations

import hashlib
from typing import Any

from fumehood_server.model.schema import canonical_json


def canonical_sha256(value: Any, text: str) -> str:  # noqa: ANN401 - any JSON value
    """64 hex digits. `text` is what the value was read from.

    RFC 8785 has no form for whole numbers beyond 2^53, nor for halves of surrogate pairs: what holds one is known by
    its text as it stands.
    """
    try:
        data = canonical_json(value).encode()
    except (ValueError, RecursionError):
        data = text.encode(errors="surrogatepass")
    return hashlib.sha256(data).hexdigest()
