"""Writes calls to a journal in a folder until it is killed, and says each that is on disk. For `test_writer`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from fumehood_server.journal.checkpoints import Checkpointer
from fumehood_server.journal.journal import StoredJournal
from fumehood_server.journal.keys import load_or_make_key
from fumehood_server.journal.sqlite import SqliteReader, SqliteStore
from fumehood_server.journal.writer import WriterSettings

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.journal.bench import ATTEMPT, about, end, start


async def main(folder: Path) -> None:
    signer = load_or_make_key(folder)
    with (folder / "handed").open("a") as handed:

        class HandOver:
            def __call__(self, note: str) -> None:
                handed.write(note + "\f")
                handed.flush()

            def cosigned(self) -> None:
                return None

        async with StoredJournal(
            lambda: SqliteStore(folder / "journal.db"),
            lambda: SqliteReader(folder / "journal.db"),
            sidecar="0a0b0c0d",
            on_state=lambda _problem: None,
            window_s=3600.0,
            upkeep=Checkpointer(signer, HandOver()),
            settings=WriterSettings(upkeep_s=0.01),
        ) as journal:

            async def calls(worker: int) -> None:
                number = 0
                while True:
                    call = f"call-{worker}-{number}"
                    number += 1
                    journal.record(start(), about(call), (b"{}",))
                    await journal.commit(ATTEMPT, about(call))
                    await journal.commit(end(), about(call), (b"[]",))
                    sys.stdout.write(call + "\n")
                    sys.stdout.flush()

            await asyncio.gather(*(calls(worker) for worker in range(8)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
