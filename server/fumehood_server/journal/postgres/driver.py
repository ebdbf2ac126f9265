"""psycopg, where it is installed: an extra of the server."""

from __future__ import annotations

import importlib

from fumehood_server.errors import FumehoodError
from fumehood_server.model.extras import install_command

INSTALL = install_command("postgresql")


class DriverMissingError(FumehoodError):
    """The journal is to lie in PostgreSQL, and psycopg isn't installed. The operator must install it."""

    def __init__(self, problem: str) -> None:
        """`problem` is what the import said."""
        super().__init__(f"a journal in PostgreSQL takes psycopg, which can't be imported: {problem}. Run {INSTALL}")


def check_driver() -> None:
    """Import it.

    Raises:
        DriverMissingError: it can't be.
    """
    try:
        importlib.import_module("psycopg")
    except ImportError as exc:  # also where there is psycopg and no libpq
        raise DriverMissingError(str(exc).partition("\n")[0]) from exc
