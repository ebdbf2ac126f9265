"""Reading a journal by SQL that both databases speak, with `?` for each value."""

from fumehood_server.journal.sql.reader import SqlReader

__all__ = ["SqlReader"]
