"""The file of bearer tokens: JSON with the SHA-256 of each, replaced whole under a lock, so that a reader sees no half.

A plain SHA-256 is enough: a token's secret is 256 random bits, and nobody searches those, however quick the hash is.
What slows a search down (scrypt, Argon2) is for what people choose, and would cost each request some 50 ms.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fumehood_server.errors import FumehoodError
from fumehood_server.model.text import printable

PREFIX = "fh"
"""Begins every token, so that scanners for leaked secrets can know one."""
MAX_TOKENS = 1000
MAX_FILE_BYTES = 1024 * 1024
_SECRET_BYTES = 32
_ID_CHARS = 8
_VERSION = 1
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
TOKEN = re.compile(r"fh_([0-9][0-9a-f]{7})_([0-9a-f]{64})", re.ASCII)


class TokenFileError(FumehoodError):
    """The file can't be used. The operator must mend it; `remedy` says how."""

    def __init__(self, path: Path, problem: str, remedy: str = "") -> None:
        """Keep the path."""
        super().__init__(f"{printable(path)}: {problem}")
        self.path = path
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is kept of a token."""

    token_id: str
    """Stands in the token, and is no secret. It begins with a digit, as no caller's name does."""
    caller: str
    sha256: str
    """Of its secret, 64 hex digits."""
    created: int
    """POSIX time in seconds."""
    expires: int | None
    """None: never."""

    def is_secret(self, secret: str) -> bool:
        """Whether it is this token's, in a time that tells nothing of where it differs."""
        return hmac.compare_digest(_hash(secret), self.sha256)

    def has_expired(self, now: float) -> bool:
        """Whether it is no good any more."""
        return self.expires is not None and now >= self.expires


def make_token(caller: str, lifetime_s: int | None, taken: Sequence[Token]) -> tuple[str, Token]:
    """A new token, which is written nowhere, and what is kept of it."""
    ids = {each.token_id for each in taken}
    while (token_id := f"{secrets.randbelow(10)}{secrets.token_hex(_ID_CHARS)[: _ID_CHARS - 1]}") in ids:
        pass
    secret, now = secrets.token_hex(_SECRET_BYTES), int(time.time())
    expires = None if lifetime_s is None else now + lifetime_s
    kept = Token(token_id=token_id, caller=caller, sha256=_hash(secret), created=now, expires=expires)
    return f"{PREFIX}_{token_id}_{secret}", kept


def read_tokens(path: Path) -> tuple[Token, ...]:
    """The tokens of the file. None where there is no file. Blocks for as long as its file system does.

    Raises:
        TokenFileError: it can't be read, is no such file, or others may write it.
    """
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as file:
            _check(path, os.fstat(file.fileno()))
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return ()
    except OSError as exc:
        raise TokenFileError(path, exc.strerror or str(exc), "let the sidecar's user read it") from exc
    if len(data) > MAX_FILE_BYTES:
        raise TokenFileError(path, f"is longer than {MAX_FILE_BYTES:,} bytes", _ANEW)
    try:
        fields = json.loads(data)
        if fields["version"] != _VERSION:
            raise TokenFileError(
                path, f"is of version {printable(str(fields['version']))[:32]}", "update the older of the two"
            )
        tokens = tuple(_token(each) for each in fields["tokens"])
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise TokenFileError(path, "is no file of tokens", _ANEW) from exc
    return tokens


@contextlib.contextmanager
def changing(path: Path) -> Iterator[list[Token]]:
    """The tokens, to be changed in the block, and written at its end. One process at a time.

    Raises:
        TokenFileError: the file can't be read or written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        raise TokenFileError(path, exc.strerror or str(exc), "run this as the sidecar's user") from exc
    try:
        _keep_owner(path, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        tokens = list(read_tokens(path))
        yield tokens
        _write(path, tokens)
    finally:
        os.close(lock)  # the lock's file stays: who removed it could remove one that another process has locked


def _write(path: Path, tokens: Sequence[Token]) -> None:
    if len(tokens) > MAX_TOKENS:
        raise TokenFileError(path, f"there would be more than {MAX_TOKENS} tokens", "revoke some first")
    data = json.dumps({"version": _VERSION, "tokens": [asdict(each) for each in tokens]}, indent=1)
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # of mode 0600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                _keep_owner(path, descriptor)
                file.write(data + "\n")
                file.flush()
                os.fsync(descriptor)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as exc:
        raise TokenFileError(path, exc.strerror or str(exc), "run this as the sidecar's user") from exc


def _keep_owner(path: Path, descriptor: int) -> None:
    """Leave the file to whom it or its folder belongs: root may add a token for a sidecar of another user."""
    if os.geteuid() == 0:
        found = (path if path.exists() else path.parent).stat()
        os.fchown(descriptor, found.st_uid, found.st_gid)


def _check(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise TokenFileError(path, "is not a regular file", "name a file")
    if found.st_mode & _OTHERS_WRITE:
        problem = f"others may write it: its mode is {stat.S_IMODE(found.st_mode):04o}"
        raise TokenFileError(path, problem, f"chmod 600 {printable(path)}, and see what it holds")
    if found.st_uid not in {0, os.geteuid()} and os.geteuid() != 0:
        problem = f"belongs to user {found.st_uid}: neither to root nor to the sidecar's own"
        raise TokenFileError(path, problem, "chown it to the user that the sidecar runs as")


_ANEW = "remove it, and add the tokens anew: `fumehood token add`"


def _token(fields: dict[str, object]) -> Token:
    token = Token(**fields)  # type: ignore[arg-type] # checked next
    expires_is_right = token.expires is None or type(token.expires) is int
    texts = (token.token_id, token.caller, token.sha256)
    if not (expires_is_right and type(token.created) is int and all(isinstance(each, str) for each in texts)):
        raise TypeError
    return token


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
