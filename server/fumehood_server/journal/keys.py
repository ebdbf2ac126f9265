"""The key that signs checkpoints: `journal.key` in the state folder, which no sandbox has, and `journal.pub`."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from fumehood_evidence.errors import NoteError
from fumehood_evidence.note import Signer, Verifier

from fumehood_server.errors import FumehoodError
from fumehood_server.model.text import printable

KEY_NAME = "journal.key"
PUBLIC_NAME = "journal.pub"


class JournalKeyError(FumehoodError):
    """The journal's key can't be read or made. The operator must mend the file, or restore it."""

    def __init__(self, path: Path, problem: str) -> None:
        """Keep the file."""
        super().__init__(f"the journal's key {printable(path)}: {problem}")
        self.path = path


def load_or_make_key(folder: Path) -> Signer:
    """The signer of this state folder. The first start makes it, under a name that no other log has.

    Raises:
        JournalKeyError: it is there and can't be read, or can't be made.
    """
    path = folder / KEY_NAME
    try:
        return _read(path)
    except FileNotFoundError:
        signer = Signer.generate(f"fumehood/{secrets.token_hex(8)}")
        _write(path, signer.private_text(), 0o600)
        add_public_key(folder, signer.verifier)
        return signer


def load_key(folder: Path) -> Signer:
    """The signer of this state folder.

    Raises:
        JournalKeyError: there is none, or it can't be read.
    """
    path = folder / KEY_NAME
    try:
        return _read(path)
    except FileNotFoundError as exc:
        raise JournalKeyError(path, "there is none yet: the first start makes it") from exc


def rotate_key(folder: Path) -> Signer:
    """Put a new key of the same name in the place of the old one, whose public half stays in `journal.pub`.

    Raises:
        JournalKeyError: there is none, or it can't be written.
    """
    signer = Signer.generate(load_key(folder).verifier.name)
    add_public_key(folder, signer.verifier)
    _write(folder / KEY_NAME, signer.private_text(), 0o600)
    return signer


def public_keys(folder: Path) -> list[Verifier]:
    """Every public key that has signed checkpoints here, oldest first.

    Raises:
        JournalKeyError: they can't be read.
    """
    try:
        return read_public_keys(folder / PUBLIC_NAME)
    except FileNotFoundError:
        return []


def read_public_keys(path: Path) -> list[Verifier]:
    """The public keys of a file, one on each line.

    Raises:
        JournalKeyError: they can't be read.
        FileNotFoundError: it is not there.
    """
    try:
        return [Verifier.parse(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError, NoteError) as exc:
        raise JournalKeyError(path, str(exc)) from exc


def add_public_key(folder: Path, verifier: Verifier) -> None:
    """Add one to `journal.pub`.

    Raises:
        JournalKeyError: it can't be written.
    """
    lines = [str(each) for each in public_keys(folder)]
    if str(verifier) not in lines:
        _write(folder / PUBLIC_NAME, "\n".join([*lines, str(verifier)]), 0o644)


def _read(path: Path) -> Signer:
    try:
        return Signer.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError, NoteError) as exc:
        raise JournalKeyError(path, str(exc)) from exc


def _write(path: Path, text: str, mode: int) -> None:
    """All of it or nothing, on disk when it returns."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, mode)
            file.write(text + "\n")
            file.flush()
            os.fsync(descriptor)
        new.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as exc:
        new.unlink(missing_ok=True)
        raise JournalKeyError(path, exc.strerror or str(exc)) from exc
