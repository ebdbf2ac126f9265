"""Text of a configuration as it may be shown: URLs without userinfo and query, and nothing with the form of a token."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from fumehood_server.cli.mcp_import.secret_values import formed_like_a_secret, looks_like_a_secret, secret_argument
from fumehood_server.secrets.source import MIN_SECRET_BYTES

HIDDEN = "(hidden)"
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>[^\s\"'`<>]*)")
_AUTHORITY = re.compile(r"[^/?#\\]*")
_PORT = re.compile(r":(?:\d*|\$\{[^{}]*\})$")
_WEB = ("http", "https", "ssh", "file", "git", "ws", "wss")
"""Schemes, the part behind a "+" as well, whose paths may hold an "@", of a package's scope or version."""


def public_urls(text: str) -> str:
    """The text with userinfo, query and fragment taken out of every URL."""
    return _URL.sub(_public_url, text)


def shown(text: str) -> str:
    """An argument, or a part of one, as a sentence may quote it."""
    plain = public_urls(text)
    return HIDDEN if formed_like_a_secret(plain) else plain


def hide(text: str, values: Iterable[str]) -> str:
    """The text without these secrets, the longest first."""
    for each in sorted(values, key=len, reverse=True):
        if len(each.encode()) >= MIN_SECRET_BYTES:
            text = text.replace(each, HIDDEN)
    return text


def argument_secrets(arguments: Sequence[str]) -> set[str]:
    """The secrets among arguments: by their form, by the option before them, or as NAME=VALUE."""
    found = set()
    for before, text in pairwise(("", *arguments)):
        name, _, value = text.partition("=")
        if value and looks_like_a_secret(name, value):
            found.add(value)
        elif secret_argument((before, text)) == 1:
            found.add(text)
    return found


def _public_url(found: re.Match[str]) -> str:
    scheme, rest = found["scheme"], found["rest"]
    matched = _AUTHORITY.match(rest)
    authority = matched[0] if matched else ""
    host = authority.rpartition("@")[2]
    # A password may hold what ends an authority. Then what stands before it reads as a host with an odd port; in URLs
    # of databases no "@" has another meaning.
    odd = ":" in host and not host.endswith("]") and not _PORT.search(host)
    if odd or scheme.lower().rpartition("+")[2] not in _WEB:
        behind = rest.rpartition("@")[2] if "@" in rest else ("" if odd else rest)
    else:
        behind = rest[len(authority) - len(host) :]
    bare = re.split(r"[?#]", behind, maxsplit=1)[0]
    return f"{scheme}://{bare}{'?…' if bare != behind else ''}"
