"""Signed notes (C2SP signed-note): a text and one signature line for each key, which Go's `sumdb/note` reads alike.

    text, whose last line ends
    <empty line>
    — name base64(key id, signature)

Two algorithms: Ed25519 over the text (a log's own signature), and the timestamped Ed25519 cosignature of a witness
(C2SP tlog-cosignature).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fumehood_evidence.errors import NoteError, UnknownKeyError

ED25519 = 0x01
COSIGNATURE = 0x04
MAX_NOTE_BYTES = 65_536
_MAX_SIGNATURES = 100
_KEY_BYTES = 32
_ID_BYTES = 4
_TIME_BYTES = 8
_DASH = "\u2014 "


@dataclass(frozen=True, slots=True)
class Verifier:
    """A public key and its name."""

    name: str
    algorithm: int
    public_key: bytes
    """32 bytes."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `name+hash+key`: the form in which keys are published.

        Raises:
            NoteError: it is none, or its hash is not that of its name and key.
        """
        parts = text.strip().split("+", 2)
        if len(parts) != 3:  # noqa: PLR2004 - the form has three
            raise NoteError("a public key is written name+hash+key")
        name, hashed, encoded = parts
        data = _decoded(encoded, "the public key")
        if len(data) != 1 + _KEY_BYTES or data[0] not in {ED25519, COSIGNATURE}:
            raise NoteError(f'the key "{name}" is of a kind that is not known here')
        verifier = cls(_checked_name(name), data[0], data[1:])
        if verifier.key_id.hex() != hashed:
            raise NoteError(f'the key "{name}" was copied wrongly: its hash is {verifier.key_id.hex()}, not {hashed}')
        return verifier

    def __str__(self) -> str:
        encoded = base64.b64encode(bytes((self.algorithm,)) + self.public_key).decode()
        return f"{self.name}+{self.key_id.hex()}+{encoded}"

    @property
    def key_id(self) -> bytes:
        """First 4 bytes of SHA-256 over name, newline, algorithm and key."""
        data = self.name.encode() + b"\n" + bytes((self.algorithm,)) + self.public_key
        return hashlib.sha256(data).digest()[:_ID_BYTES]

    def verify(self, text: str, signature: bytes) -> int | None:
        """Check a signature over a note's text. Returns a cosignature's POSIX time, None for a plain signature.

        Raises:
            NoteError: it is not by this key.
        """
        message, time = text.encode(), None
        if self.algorithm == COSIGNATURE:
            time = int.from_bytes(signature[:_TIME_BYTES], "big")
            signature = signature[_TIME_BYTES:]
            message = _cosigned(text, time)
        try:
            Ed25519PublicKey.from_public_bytes(self.public_key).verify(signature, message)
        except (InvalidSignature, ValueError) as exc:
            raise NoteError(f'the signature by "{self.name}" is wrong') from exc
        return time


class Signer:
    """A private key and its name."""

    def __init__(self, name: str, key: Ed25519PrivateKey, *, algorithm: int = ED25519) -> None:
        """`algorithm` COSIGNATURE makes it a witness."""
        self._key = key
        self.verifier = Verifier(_checked_name(name), algorithm, key.public_key().public_bytes_raw())

    @classmethod
    def generate(cls, name: str) -> Self:
        """One with a new key."""
        return cls(name, Ed25519PrivateKey.generate())

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `PRIVATE+KEY+name+hash+key`.

        Raises:
            NoteError: it is none.
        """
        parts = text.strip().split("+", 4)
        if len(parts) != 5 or parts[:2] != ["PRIVATE", "KEY"]:  # noqa: PLR2004 - the form has five
            raise NoteError("a private key is written PRIVATE+KEY+name+hash+key")
        data = _decoded(parts[4], "the private key")
        if len(data) != 1 + _KEY_BYTES or data[0] != ED25519:
            raise NoteError("the private key is of a kind that is not known here")
        signer = cls(parts[2], Ed25519PrivateKey.from_private_bytes(data[1:]))
        if signer.verifier.key_id.hex() != parts[3]:
            raise NoteError("the private key was copied wrongly: its hash is another")
        return signer

    def private_text(self) -> str:
        """The form that `parse` reads: a secret."""
        encoded = base64.b64encode(bytes((ED25519,)) + self._key.private_bytes_raw()).decode()
        return f"PRIVATE+KEY+{self.verifier.name}+{self.verifier.key_id.hex()}+{encoded}"

    def sign(self, text: str, *, time: int = 0) -> str:
        """The signature line of this key for a text, newline included. `time` is a cosignature's, in POSIX seconds."""
        if self.verifier.algorithm == COSIGNATURE:
            signature = struct.pack(">Q", time) + self._key.sign(_cosigned(text, time))
        else:
            signature = self._key.sign(text.encode())
        return f"{_DASH}{self.verifier.name} {base64.b64encode(self.verifier.key_id + signature).decode()}\n"


@dataclass(frozen=True, slots=True)
class Signature:
    """One that holds."""

    name: str
    time: int | None
    """When a witness cosigned, in POSIX seconds."""


@dataclass(frozen=True, slots=True)
class Note:
    """A note that at least one known key signed."""

    text: str
    signatures: tuple[Signature, ...]


def signed(text: str, signers: Iterable[Signer]) -> str:
    """The note over a text.

    Raises:
        NoteError: the text is no lines of text.
    """
    _check_text(text)
    return text + "\n" + "".join(each.sign(text) for each in signers)


def opened(note: str, verifiers: Iterable[Verifier]) -> Note:
    """The text of a note and which of these keys signed it. Signatures by other keys are passed over.

    Raises:
        NoteError: it is malformed, or a known key's signature is wrong.
        UnknownKeyError: none of these keys signed it.
    """
    text, lines = _split(note)
    known = {(each.name, each.key_id): each for each in verifiers}
    found: dict[tuple[str, bytes], Signature] = {}
    for line in lines:
        name, _, encoded = line.removeprefix(_DASH).partition(" ")
        if not line.startswith(_DASH) or not _is_name(name) or not encoded:
            raise NoteError("a signature line of the note is malformed")
        data = _decoded(encoded, "a signature of the note")
        if len(data) <= _ID_BYTES:
            raise NoteError("a signature line of the note is malformed")
        key = (name, data[:_ID_BYTES])
        verifier = known.get(key)
        if verifier is None or key in found:
            continue
        found[key] = Signature(name, verifier.verify(text, data[_ID_BYTES:]))
    if not found:
        raise UnknownKeyError("none of the keys given has signed the note")
    return Note(text, tuple(found.values()))


def _split(note: str) -> tuple[str, list[str]]:
    if len(note.encode("utf-8", "surrogatepass")) > MAX_NOTE_BYTES:
        raise NoteError(f"the note has more than {MAX_NOTE_BYTES:,} bytes")
    _check_characters(note)
    at = note.rfind("\n\n")
    if at < 0 or not note.endswith("\n"):
        raise NoteError("the note has no signatures")
    text, rest = note[: at + 1], note[at + 2 :]
    lines = rest.split("\n")[:-1]
    if not 0 < len(lines) <= _MAX_SIGNATURES:
        raise NoteError(f"the note has {len(lines)} signatures")
    return text, lines


def _check_text(text: str) -> None:
    _check_characters(text)
    if not text.endswith("\n"):
        raise NoteError("a note's text ends with a newline")


def _check_characters(text: str) -> None:
    if any((character < " " and character != "\n") or "\ud800" <= character <= "\udfff" for character in text):
        raise NoteError("a note has no control characters but newlines")


def _cosigned(text: str, time: int) -> bytes:
    return f"cosignature/v1\ntime {time}\n{text}".encode()


def _is_name(name: str) -> bool:
    return bool(name) and "+" not in name and not any(character.isspace() for character in name)


def _checked_name(name: str) -> str:
    if not _is_name(name):
        raise NoteError(f'"{name}" can\'t name a key: no spaces and no plus')
    return name


def _decoded(encoded: str, what: str) -> bytes:
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise NoteError(f"{what} is no base64") from exc
    if base64.b64encode(data).decode() != encoded:  # loose trailing bits: one signature, one text
        raise NoteError(f"{what} is no canonical base64")
    return data
