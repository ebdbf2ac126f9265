"""What is recorded of a call does not hold up the others: large arguments and results are prepared in a thread."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

from fumehood_server.calls.call import Call
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.records import CallRecords
from fumehood_server.journal.journal import StoredJournal
from fumehood_server.journal.sqlite import SqliteReader, SqliteStore
from fumehood_server.model.call import Block, CallContext, CallOutcome, CallRequest

from .fake import tool

LARGE = 1_000_000


def prepared_aside() -> bool:
    return any(thread.name.startswith("journal-payloads") for thread in threading.enumerate())


async def test_large_payloads_are_made_in_a_thread_and_small_ones_at_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with StoredJournal(
        lambda: SqliteStore(path),
        lambda: SqliteReader(path),
        sidecar="0a0b0c0d",
        on_state=lambda _: None,
        window_s=60.0,
    ) as journal:
        records = CallRecords(journal)
        try:
            for size, aside in ((1_000, False), (LARGE, True)):
                request = CallRequest(
                    call_id=f"call-{size}",
                    tool="echo",
                    arguments_json='{"text":"' + "x" * size + '"}',
                    context=CallContext(),
                    timeout_s=None,
                    caller_deadline=None,
                )
                call, progress = Call(request), Progress()
                progress.tool = tool()
                outcome = CallOutcome(
                    call_id=request.call_id, tool="echo", content=(Block(text='"' * size),), details_json="", attempts=1
                )
                await records.start(call, progress)
                assert await records.end(call, progress, outcome) is outcome
                assert prepared_aside() is aside
        finally:
            records.close()
    with contextlib.closing(SqliteReader(path)) as reader:
        payloads = reader.payloads(0, 4)
    assert [len(payloads[position, 0]) > LARGE for position in range(4)] == [False, False, True, True]
