"""Connections to PostgreSQL (libpq, by psycopg) on which nothing waits without a bound, and its errors as ours.

A server that is frozen, or gone with its machine, answers nothing and closes nothing. So each wait for its answer ends
here, whatever the server's own timeouts are worth then.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.waiting import Ready, Wait

from fumehood_server.journal.store import StoreError
from fumehood_server.secrets import SecretUnavailableError

if TYPE_CHECKING:
    from fumehood_server.config.database import Database

# What it logs is raised, too: without a handler Python would write it to the log as it is.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

SCHEMA = "fumehood"
CONNECT_S = 5
ANSWER_S = 5.0
"""The longest wait for a byte of the server's. Calls that wait for the journal are told after as long."""
READ_S = 30.0
"""The same where somebody reads: counting millions of rows takes some seconds."""
MIGRATE_S = 3_600.0
"""The same while a schema is brought up to date, which may write all of a table anew."""

_Value = TypeVar("_Value")
_Ready = Ready | int

_LIBPQ = {
    "connect_timeout": CONNECT_S,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "application_name": "fumehood",
    "client_encoding": "UTF8",
}
"""Where the URL says nothing else. A machine that is gone is noticed after some 10 s also where nothing is sent."""

_SESSION: Mapping[str, str] = {
    "search_path": SCHEMA,
    # The server notices as soon that a sidecar's machine is gone: its locks say that it lives.
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
_WRITER: Mapping[str, str] = {
    # A sidecar that is frozen within a transaction must not keep the others from theirs.
    "idle_in_transaction_session_timeout": "5000",
    "lock_timeout": "4000",
    "statement_timeout": "60000",
}
_READER: Mapping[str, str] = {
    "default_transaction_read_only": "on",
    "statement_timeout": "600000",
    # What is asked for is found by indexes. Of tables that nobody has analysed yet, the planner may think otherwise.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}


class _NoAnswerError(psycopg.OperationalError):
    """The server keeps us waiting."""


class BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """Raises `psycopg.OperationalError` where the server does not answer in time. It must be closed then."""

    answer_s: float = ANSWER_S

    def wait(self, gen: Generator[Wait, _Ready, _Value], interval: float = 0.1, timeout: float | None = None) -> _Value:
        """See psycopg: carries out one exchange with the server."""
        try:
            return super().wait(_in_time(gen, self.answer_s if timeout is None else timeout), interval)
        except _NoAnswerError:
            self.close()  # or whatever follows, as a rollback, would wait as long
            raise


def _in_time(gen: Generator[Wait, _Ready, _Value], answer_s: float) -> Generator[Wait, _Ready, _Value]:
    """The same exchange, ended where nothing can be read or written for so long."""
    try:
        wanted = next(gen)
        last = time.monotonic()
        while True:
            ready = yield wanted
            now = time.monotonic()
            if ready:
                last = now
            elif now - last > answer_s:
                gen.close()
                raise _NoAnswerError(f"the server has not answered for {answer_s:g} s")
            wanted = gen.send(ready)
    except StopIteration as end:
        value: _Value = end.value
        return value


def connect(database: Database, *, readonly: bool = False, answer_s: float | None = None) -> BoundedConnection:
    """A connection: in autocommit mode where it only reads. Raises psycopg's own errors: see `as_store_errors`."""
    connection = BoundedConnection.connect(resolved(database), autocommit=True)
    with contextlib.ExitStack() as stack:
        stack.callback(connection.close)
        connection.answer_s = answer_s or (READ_S if readonly else ANSWER_S)
        settings = {**_SESSION, **(_READER if readonly else _WRITER)}
        if answer_s is not None:
            settings |= {"statement_timeout": "0", "lock_timeout": "0"}
        calls = ", ".join(["set_config(%s, %s, false)"] * len(settings))
        values = [each for setting in settings.items() for each in setting]
        # What is committed is on disk: an operator may have switched that off for the database.
        durable = "set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), false)"
        row = connection.execute(f"SELECT current_setting('server_encoding'), {durable}, {calls}", values).fetchone()
        if row is None or row[0] != "UTF8":
            raise StoreError(f"{database}: its encoding is {row and row[0]}, and the journal takes UTF8")
        connection.autocommit = readonly
        stack.pop_all()
    return connection


def resolved(database: Database) -> str:
    """What libpq is told, the password as it is now included.

    Raises:
        StoreError: the password can't be read.
    """
    try:
        conninfo, password = database.reveal()
    except SecretUnavailableError as exc:
        raise StoreError(f"{database}: {exc}: {exc.remedy}") from exc
    known: dict[str, Any] = {**_LIBPQ, **conninfo_to_dict(conninfo)}
    return make_conninfo(**known | ({"password": password} if password else {}))


@contextlib.contextmanager
def as_store_errors(database: Database) -> Iterator[None]:
    """PostgreSQL's errors as ours, on one line and without the URL's password."""
    try:
        yield
    except psycopg.Error as exc:
        text = " ".join(str(exc).split()) or type(exc).__name__
        raise StoreError(f"{database} can't be used: {database.hide(text)}") from exc
