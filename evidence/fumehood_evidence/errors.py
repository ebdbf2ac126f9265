"""Why a proof, a note or a bundle is refused."""

from __future__ import annotations


class EvidenceError(Exception):
    """What was handed in proves nothing. The message says what is wrong, and where."""


class ProofError(EvidenceError):
    """A Merkle proof does not lead to the root."""


class NoteError(EvidenceError):
    """A signed note is malformed, or bears no signature by the keys given."""


class UnknownKeyError(NoteError):
    """A signed note bears signatures by other keys alone."""
