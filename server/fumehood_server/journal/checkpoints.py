"""Signs what the journal holds, and hands it to where the operator said."""

from __future__ import annotations

from typing import Protocol

from fumehood_evidence.checkpoint import Checkpoint
from fumehood_evidence.note import Signer, opened, signed

from fumehood_server.journal.store import Store


class HandOver(Protocol):
    """Where signed checkpoints go. Never blocks."""

    def __call__(self, note: str) -> None:
        """Take a signed note to the places."""

    def cosigned(self) -> str | None:
        """A note that came back with a witness's signature, once."""


class Checkpointer:
    """Called by the writer's thread when the log has grown. A checkpoint is kept before it is handed over."""

    def __init__(self, signer: Signer, hand_over: HandOver | None = None) -> None:
        """The key's name is the log's. `hand_over` is given each signed note."""
        self._signer = signer
        self._hand_over = hand_over
        self._signed = -1
        """Events that the last checkpoint covers."""

    def __call__(self, store: Store) -> None:
        """Sign a checkpoint over all that is written, unless there is one.

        Raises:
            StoreError: it can't be kept.
        """
        tree = store.tree()
        if tree.size in {self._keep_cosigned(store), self._signed}:
            return
        checkpoint = Checkpoint(self._signer.verifier.name, tree.size, tree.root())
        note = signed(str(checkpoint), [self._signer])
        store.add_checkpoint(tree.size, note)
        self._signed = tree.size
        if self._hand_over is not None:
            self._hand_over(note)

    def _keep_cosigned(self, store: Store) -> int | None:
        """Keep the note that came back, over the one that went. Returns its size, None where there is none."""
        note = None if self._hand_over is None else self._hand_over.cosigned()
        if note is None:
            return None
        size = Checkpoint.parse(opened(note, [self._signer.verifier]).text).size
        store.add_checkpoint(size, note)
        return size
