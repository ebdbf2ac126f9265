"""Writes a small journal of the newest schema as SQL: once for each schema version, before the next one is begun."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import tempfile
from pathlib import Path

from fumehood_evidence.note import Signer

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.journal.bench import entries, written


def main() -> None:
    signer = Signer.generate("test/schemas")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        written(path, [[*entries(3)]], signer)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            lines = [*connection.iterdump()]
    text = f"-- {signer.verifier}\nPRAGMA user_version = {version};\n" + "\n".join(lines) + "\n"
    Path(__file__).with_name(f"schema-{version}.sql").write_text(text)


if __name__ == "__main__":
    main()
