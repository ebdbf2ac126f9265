"""Signs what the journal holds, and hands it to where the operator said."""

from __future__ import annotations

from collections.abc import Callable

from fumehood_evidence.checkpoint import Checkpoint
from fumehood_evidence.note import Signer, signed

from fumehood_server.journal.store import Store


class Checkpointer:
    """Called by the writer's thread when the log has grown. A checkpoint is kept before it is handed over."""

    def __init__(self, signer: Signer, hand_over: Callable[[str], None] | None = None) -> None:
        """The key's name is the log's. `hand_over` is given each signed note; it must not raise."""
        self._signer = signer
        self._hand_over = hand_over

    def __call__(self, store: Store) -> None:
        """Sign a checkpoint over all that is written.

        Raises:
            StoreError: it can't be kept.
        """
        tree = store.tree()
        checkpoint = Checkpoint(self._signer.verifier.name, tree.size, tree.root())
        note = signed(str(checkpoint), [self._signer])
        store.add_checkpoint(tree.size, note)
        if self._hand_over is not None:
            self._hand_over(note)
