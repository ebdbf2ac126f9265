"""What is recorded of a call does not hold up the others: large arguments and results are prepared in a thread."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest
from fumehood_server.calls.call import Call
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.records import CallRecords
from fumehood_server.journal.journal import StoredJournal
from fumehood_server.journal.sqlite import SqliteReader, SqliteStore
from fumehood_server.model.call import Block, CallContext, CallOutcome, CallRequest
from fumehood_server.secrets import Redactor

from .fake import tool

LARGE = 1_000_000


def prepared_aside() -> bool:
    return any(thread.name.startswith("journal-payloads") for thread in threading.enumerate())


def stored(path: Path) -> StoredJournal:
    return StoredJournal(
        lambda: SqliteStore(path),
        lambda: SqliteReader(path),
        sidecar="0a0b0c0d",
        on_state=lambda _: None,
        window_s=60.0,
    )


def request(call_id: str, text: str) -> CallRequest:
    return CallRequest(
        call_id=call_id,
        tool="echo",
        arguments_json=f'{{"text":"{text}"}}',
        context=CallContext(),
        timeout_s=None,
        caller_deadline=None,
    )


async def test_large_payloads_are_made_in_a_thread_and_small_ones_at_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with stored(path) as journal:
        records = CallRecords(journal)
        try:
            for size, aside in ((1_000, False), (LARGE, True)):
                call, progress = Call(request(f"call-{size}", "x" * size)), Progress()
                progress.tool = tool()
                content = (Block(text='"' * size),)
                outcome = CallOutcome(call_id=f"call-{size}", tool="echo", content=content, details_json="", attempts=1)
                await records.start(call, progress)
                assert await records.end(call, progress, outcome) is outcome
                assert prepared_aside() is aside
        finally:
            records.close()
    with contextlib.closing(SqliteReader(path)) as reader:
        payloads = reader.payloads(0, 4)
    assert [len(payloads[position, 0]) > LARGE for position in range(4)] == [False, False, True, True]


@contextlib.contextmanager
def sleeps() -> Iterator[list[object]]:
    """Each time that this thread, the event loop's, sleeps."""
    counted: list[object] = []

    def called(_frame: FrameType, event: str, function: object) -> None:
        if event == "c_call" and function is time.sleep:
            counted.append(function)

    sys.setprofile(called)
    try:
        yield counted
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(
    "block", [Block(data=b"x" * 15 * 1024), Block(text='"' * 15 * 1024)], ids=["base64", "escapes"]
)
async def test_secrets_are_taken_out_without_a_pause_of_the_loop_of_what_only_its_encoding_makes_large(
    tmp_path: Path, block: Block
) -> None:
    redactor = Redactor()
    redactor.learn("KEY", b"the value of a secret")
    with sleeps() as counted:
        redactor.data_in_thread(b"x" * LARGE)
    assert counted, "control: as in a thread, it pauses"

    async def redactor_of(*_: object) -> Redactor:
        return redactor

    call, progress = Call(request("call", "é" * 15 * 1024)), Progress()
    progress.tool = replace(tool(), plugin_secrets=("KEY",))
    outcome = CallOutcome(call_id="call", tool="echo", content=(block,), details_json="", attempts=1)
    async with stored(tmp_path / "journal.db") as journal:
        records = CallRecords(journal, redactor_of=redactor_of)
        try:
            await records.find_secrets(progress)
            with sleeps() as counted:
                await records.start(call, progress)
                await records.end(call, progress, outcome)
            assert not counted
        finally:
            records.close()
