"""The journal in one SQLite file: the default, for one sidecar."""

from fumehood_server.journal.sqlite.database import MIGRATIONS
from fumehood_server.journal.sqlite.reader import SqliteReader
from fumehood_server.journal.sqlite.store import SqliteStore

__all__ = ["MIGRATIONS", "SqliteReader", "SqliteStore"]
