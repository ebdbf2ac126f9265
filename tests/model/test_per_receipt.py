"""What is made of a receipt is kept as long as the receipt, and no longer."""

from __future__ import annotations

import gc

from fumehood_sandbox import Layer, Level, Receipt
from fumehood_server.calls.receipt_documents import ReceiptDocuments
from fumehood_server.model.per_receipt import PerReceipt


def receipt(detail: str = "all") -> Receipt:
    return Receipt(level=Level.READ, backend="bubblewrap", policy_digest="0" * 64, layers=(Layer("seccomp", detail),))


def test_what_was_kept_is_found_by_the_same_receipt_and_no_equal_one() -> None:
    table: PerReceipt[str] = PerReceipt()
    one, equal = receipt(), receipt()
    table.keep(one, "made")
    assert (table.get(one), table.get(equal)) == ("made", None)


def test_it_goes_with_its_receipt_and_those_of_others_stay() -> None:
    class Made:
        pass

    table: PerReceipt[Made] = PerReceipt()
    kept = receipt()
    table.keep(kept, Made())
    for number in range(100):
        table.keep(receipt(str(number)), Made())
    gc.collect()
    assert sum(isinstance(each, Made) for each in gc.get_objects()) == 1
    assert table.get(kept) is not None


def test_the_documents_of_a_receipt_are_made_once() -> None:
    documents, one = ReceiptDocuments(), receipt()
    digest, made = documents.of(one, None)
    assert documents.of(one, None)[1] is made
    assert documents.of(receipt("other"), None)[0] != digest
