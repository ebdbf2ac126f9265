"""A journal with one run of many calls, made without a sidecar."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from fumehood_server.journal import JOURNAL_NAME
from fumehood_server.journal.encoding import encode
from fumehood_server.journal.entry import Entry
from fumehood_server.journal.sqlite import SqliteStore
from fumehood_server.model.events import Digested, ExecuteEnd

from tests.journal.bench import STARTED_US, about, start

RUN = "long"


@contextmanager
def journal_of_run(calls: int, result_bytes: int, character: str = "x") -> Iterator[Path]:
    """The configuration of a journal whose one run has calls that each returned so many times a character."""
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        (folder / "fumehood.toml").write_text("")
        (folder / ".fumehood").mkdir(mode=0o700)
        made = _entries(calls, character * result_bytes)
        with contextlib.closing(SqliteStore(folder / ".fumehood" / JOURNAL_NAME)) as store:
            while batch := [*islice(made, 256)]:
                store.write(batch)
        yield folder / "fumehood.toml"


def _entries(calls: int, text: str) -> Iterator[Entry]:
    outcome = {"content": [{"text": text}], "details_json": "", "terminate": False, "error": None}
    result = json.dumps(outcome).encode()
    ended = ExecuteEnd(error=None, outcome_unknown=False, result=Digested.of(result), attempts=1)
    for number in range(calls):
        of = about(f"call-{number}", run_id=RUN)
        for place, (event, payload) in enumerate(((start(), b"{}"), (ended, result))):
            yield encode(
                event,
                of,
                time_us=STARTED_US + 2 * number + place,
                sidecar="0a0b0c0d",
                number=place + 1,
                payloads=(payload,),
            )
