"""What is said of an HTTP response that is no answer: its status, why there is none, and what to do."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping

REFUSAL_FIELD = "Fumehood-Refusal"
MAX_TEXT_BYTES = 2048
"""Of a body, for people."""
_REDIRECTS = range(300, 400)
_UNAUTHORIZED, _FORBIDDEN = 401, 403
_SCHEME = re.compile(r"\s*([A-Za-z0-9!#$%&'*+.^_`|~-]{1,64})(?:\s|\Z)")
"""What a challenge begins with (RFC 9110, 11.3)."""


def describe(response: http.client.HTTPResponse, body: bytes, sent: Mapping[str, str]) -> str:
    """What is said of it, in bounds. `sent` are the header fields of `plugin.toml` that the request had."""
    text = " ".join(body[:MAX_TEXT_BYTES].decode("utf-8", "replace").split())[:500]
    if response.getheader(REFUSAL_FIELD):
        return f"the sidecar refuses it: {text}"
    status = response.status
    if status in _REDIRECTS:
        where = (response.getheader("Location") or "")[:500]
        return f"the MCP server answers with a redirect to {where}, which is not followed: name that URL"
    said = f"the MCP server answers with HTTP status {status}"
    if status not in (_UNAUTHORIZED, _FORBIDDEN):
        return f"{said}: {text}"
    challenge = _SCHEME.match(response.getheader("WWW-Authenticate") or "")
    said = f"{said} ({challenge[1]})" if challenge else said
    told = f"{said}: {_what_to_do(sent)}"
    return f"{told}. It says: {text}" if text else told


def _what_to_do(sent: Mapping[str, str]) -> str:
    """In few words: what a process ends with is cut at 160 characters where it is shown."""
    if not sent:
        return "[plugin.headers] can have a secret in a header field"
    return "[plugin.headers] has the wrong secret, or one that is not granted"
