"""Checkpoints of a log (C2SP tlog-checkpoint): its name, how many records it has, and the root over them."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Self

from fumehood_evidence.errors import NoteError
from fumehood_evidence.merkle import HASH_BYTES

_LINES = 3


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a log commits to."""

    origin: str
    """Name of the log."""
    size: int
    """Number of records."""
    root: bytes
    """Root of the tree over them."""
    extensions: tuple[str, ...] = ()
    """Further lines."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """From a note's text.

        Raises:
            NoteError: it is no checkpoint.
        """
        lines = text.split("\n")
        if len(lines) <= _LINES or lines[-1]:
            raise NoteError("a checkpoint has three lines: origin, size and root")
        origin, size, encoded, *extensions = lines[:-1]
        try:
            root = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as exc:
            raise NoteError("the checkpoint's root is no base64") from exc
        if not origin or not size.isascii() or not size.isdigit() or (size != "0" and size.startswith("0")):
            raise NoteError("the checkpoint has no origin or no size")
        if len(root) != HASH_BYTES or base64.b64encode(root).decode() != encoded or "" in extensions:
            raise NoteError("the checkpoint's root is malformed")
        return cls(origin, int(size), root, tuple(extensions))

    def __str__(self) -> str:
        root = base64.b64encode(self.root).decode()
        return "".join(f"{line}\n" for line in (self.origin, self.size, root, *self.extensions))
