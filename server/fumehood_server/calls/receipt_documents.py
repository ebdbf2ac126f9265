"""Receipts and the policies that they carry out, as documents of the journal: each made once."""

from __future__ import annotations

from fumehood_sandbox import Receipt

from fumehood_server.model.events import Document, policy_document, receipt_document
from fumehood_server.model.plugin import RegisteredTool

_MAX_RECEIPTS = 1024


class ReceiptDocuments:
    """For one event loop."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        """None is known yet."""
        self._known: dict[int, tuple[Receipt, str, tuple[Document, ...]]] = {}

    def of(self, receipt: Receipt, tool: RegisteredTool | None) -> tuple[str, tuple[Document, ...]]:
        """The receipt's digest; the receipt, and the policy of `tool` if that is what it carries out."""
        # By identity, as in `rpc.result_messages`: hashing a receipt anew costs more than the rest of an event.
        found = self._known.get(id(receipt))
        if found is not None and found[0] is receipt:
            return found[1], found[2]
        if len(self._known) >= _MAX_RECEIPTS:
            self._known.clear()
        document = receipt_document(receipt)
        documents: tuple[Document, ...] = (document,)
        if tool is not None and tool.spec is not None and tool.spec.policy.digest() == receipt.policy_digest:
            documents = (document, policy_document(tool.spec.policy))
        digest = document.digest.hex()
        self._known[id(receipt)] = (receipt, digest, documents)
        return digest, documents
