"""A process that verifies a journal beside the sidecar: it takes some 20 µs of Python for each event.

It reads `{"keys": […], "place": …}` as a line of JSON from standard input, since a process's arguments are everybody's
to see. It writes JSON lines: `[events, total]` as it goes on, then one object with the fields of `Verified`. It ends
when nobody reads them any more.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import orjson
from fumehood_evidence.note import Verifier

from fumehood_server.config.database import Database
from fumehood_server.journal.place import DatabasePlace, FilePlace, Place
from fumehood_server.journal.store import StoreError
from fumehood_server.journal.verify import verify

NICENESS = 10
FAILED_STATUS = 3
"""The journal can't be read. The reason is the last line, `{"error": …}`."""


def main() -> int:
    """Verify the journal that is named. Returns the exit status."""
    os.nice(NICENESS)
    wanted = orjson.loads(sys.stdin.buffer.readline())
    keys = [Verifier.parse(line) for line in wanted["keys"]]
    try:
        with contextlib.closing(_place(wanted["place"]).open_reader()) as reader, reader.snapshot():
            reader.size()
            found = verify(reader, keys, progress=lambda done, total: _write([done, total]))
    except StoreError as exc:
        _write({"error": str(exc)})
        return FAILED_STATUS
    _write(asdict(found))
    return 0


def _place(fields: Mapping[str, str]) -> Place:
    if "path" in fields:
        return FilePlace(Path(fields["path"]))
    return DatabasePlace(Database(fields["url"], fields["password"]))


def _write(value: object) -> None:
    sys.stdout.buffer.write(orjson.dumps(value) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
