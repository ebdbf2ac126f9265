"""The tokens that hold now: the file of them, looked at for each request that brings one, read when it has changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from fumehood_server.callers.token_file import TOKEN, Token, TokenFileError, read_tokens

Report = Callable[[TokenFileError], None]
"""Told once of each state in which the file can't be used."""

_Seen = tuple[int, int, int, int] | None


class TokenStore:
    """Finds tokens. For one event loop.

    The file is looked at each time (stat(2), some 2 µs), so that a token which was revoked is refused from the moment
    at which the command returns, and one that was added is taken. Reading a thousand takes some 5 ms. While the file
    can't be used, no token holds.
    """

    __slots__ = ("_path", "_report", "_seen", "_tokens")

    def __init__(self, path: Path, report: Report) -> None:
        """Nothing is read yet."""
        self._path = path
        self._report = report
        self._seen: _Seen = (-1, -1, -1, -1)
        self._tokens: Mapping[str, Token] = {}

    def find(self, text: str) -> tuple[Token | None, str]:
        """The token, or None and why there is none: "unknown" or "expired".

        Only who holds the whole secret is told of its expiry.
        """
        parts = TOKEN.fullmatch(text)
        if parts is None:
            return None, "unknown"
        self._look()
        token = self._tokens.get(parts[1])
        if token is None or not token.is_secret(parts[2]):
            return None, "unknown"
        return (None, "expired") if token.has_expired(time.time()) else (token, "")

    def _look(self) -> None:
        seen = self._stat()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._tokens = {each.token_id: each for each in read_tokens(self._path)}
        except TokenFileError as problem:
            self._tokens = {}
            self._report(problem)

    def _stat(self) -> _Seen:
        try:
            found = os.stat(self._path)  # noqa: PTH116 - for each request
        except OSError:
            return None
        # Its ctime too: a mode or an owner that was mended changes no content.
        return (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
