"""A process that verifies a journal beside the sidecar: it takes some 20 µs of Python for each event.

It reads public keys as a line with a JSON list from standard input, and writes JSON lines: `[events, total]` as it goes
on, then one object with the fields of `Verified`. It ends when nobody reads them any more.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import orjson
from fumehood_evidence.note import Verifier

from fumehood_server.journal.sqlite import SqliteReader
from fumehood_server.journal.store import StoreError
from fumehood_server.journal.verify import verify

NICENESS = 10
FAILED_STATUS = 3
"""The journal can't be read. The reason is the last line, `{"error": …}`."""


def main(arguments: Sequence[str]) -> int:
    """Verify the journal in the file that is named. Returns the exit status."""
    os.nice(NICENESS)
    keys = [Verifier.parse(line) for line in orjson.loads(sys.stdin.buffer.readline())]
    try:
        with contextlib.closing(SqliteReader(Path(arguments[0]))) as reader:
            reader.size()
            found = verify(reader, keys, progress=lambda done, total: _write([done, total]))
    except StoreError as exc:
        _write({"error": str(exc)})
        return FAILED_STATUS
    _write(asdict(found))
    return 0


def _write(value: object) -> None:
    sys.stdout.buffer.write(orjson.dumps(value) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
