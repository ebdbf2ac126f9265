"""Receipts and the policies that they carry out, as documents of the journal: each made once."""

from __future__ import annotations

from fumehood_sandbox import Receipt

from fumehood_server.model.events import Document, policy_document, receipt_document
from fumehood_server.model.per_receipt import PerReceipt
from fumehood_server.model.plugin import RegisteredTool


class ReceiptDocuments:
    """For one event loop."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        """None is known yet."""
        self._known: PerReceipt[tuple[str, tuple[Document, ...]]] = PerReceipt()

    def of(self, receipt: Receipt, tool: RegisteredTool | None) -> tuple[str, tuple[Document, ...]]:
        """The receipt's digest; the receipt, and the policy of `tool` if that is what it carries out."""
        found = self._known.get(receipt)
        if found is not None:
            return found
        document = receipt_document(receipt)
        documents: tuple[Document, ...] = (document,)
        if tool is not None and tool.spec is not None and tool.spec.policy.digest() == receipt.policy_digest:
            documents = (document, policy_document(tool.spec.policy))
        made = (document.digest.hex(), documents)
        self._known.keep(receipt, made)
        return made
