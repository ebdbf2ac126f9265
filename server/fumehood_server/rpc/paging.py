"""Page tokens of listings (AIP-158): opaque to callers, and good after a restart."""

from __future__ import annotations

import base64
import binascii
import hashlib

import orjson

from fumehood_server.errors import Refusal, RefusalReason, RefusedError

DEFAULT_PAGE = 100
MAX_PAGE = 1000
MAX_PAGE_BYTES = 3 * 1024 * 1024
"""A page ends early here: clients take messages of 4 MiB unless told otherwise."""

_CHECK_BYTES = 8
_MAX_TOKEN_CHARS = 1024


def page_size(asked: int) -> int:
    """How many tools a page may have.

    Raises:
        RefusedError: `asked` is negative.
    """
    if asked < 0:
        raise RefusedError(Refusal(RefusalReason.REQUEST_INVALID, "page_size must not be negative"))
    return min(asked or DEFAULT_PAGE, MAX_PAGE)


def make_token(after: str, filters: tuple[str, ...]) -> str:
    """The token of the page that follows the tool `after`, for a listing with these filters."""
    text = orjson.dumps([after, *filters])
    return base64.urlsafe_b64encode(_check(text) + text).decode().rstrip("=")


def read_token(token: str, filters: tuple[str, ...]) -> str:
    """The name after which the page begins; empty for the first page.

    Raises:
        RefusedError: the token was not made here, or for a listing with other filters.
    """
    if not token:
        return ""
    try:
        if len(token) > _MAX_TOKEN_CHARS:
            raise _wrong()
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _wrong() from None
    check, text = data[:_CHECK_BYTES], data[_CHECK_BYTES:]
    if check != _check(text):
        raise _wrong()
    after, *made_for = orjson.loads(text)
    if tuple(made_for) != filters:
        raise _wrong("page_token belongs to a listing with other filters: repeat them, or start without a token")
    return str(after)


def _check(text: bytes) -> bytes:
    """Tells our tokens from mistakes. It is no secret: a token says nothing that a caller may not say."""
    return hashlib.blake2b(text, digest_size=_CHECK_BYTES, person=b"page-token").digest()


def _wrong(message: str = "page_token was not made here: start without one") -> RefusedError:
    return RefusedError(Refusal(RefusalReason.PAGE_TOKEN_INVALID, message))
