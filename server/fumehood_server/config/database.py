"""`[journal] store` as the URL of a PostgreSQL database, and where its password is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from fumehood_server.config.database_files import DatabaseFiles, database_files
from fumehood_server.config.secrets import secret_source
from fumehood_server.model.text import printable
from fumehood_server.secrets import SecretSource

if TYPE_CHECKING:
    from fumehood_server.config.config_file import JournalTable
    from fumehood_server.config.toml_source import TomlSource

SCHEMES = ("postgresql", "postgres")
_SECRET_PARAMETERS = frozenset({"password", "sslpassword"})
_HIDDEN = "***"


class Database:
    """A PostgreSQL database. No text of it shows the password, and it is compared with it."""

    __slots__ = ("_conninfo", "_label", "_password", "_secrets")

    def __init__(self, conninfo: str, password: SecretSource | str | None = None) -> None:
        """`conninfo`: a URL. `password`: its source, or itself."""
        self._conninfo = conninfo
        self._password = password
        self._label, self._secrets = _without_secrets(conninfo)

    def __str__(self) -> str:
        return self._label

    def __repr__(self) -> str:
        return f"Database({self._label!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Database):
            return NotImplemented
        return (self._conninfo, self._password) == (other._conninfo, other._password)

    def __hash__(self) -> int:
        return hash(self._conninfo)

    @property
    def has_password(self) -> bool:
        """Whether the URL itself has one in it."""
        return bool(self._secrets)

    @property
    def files(self) -> DatabaseFiles:
        """The files that libpq reads for it, besides `password_file`. May block."""
        return database_files(_parameters(self._conninfo))

    @property
    def password_file(self) -> Path | None:
        """The file of its password. None: it is not in a file of its own."""
        return self._password.file if isinstance(self._password, SecretSource) else None

    def reveal(self) -> tuple[str, str]:
        """What libpq is told, and the password as it is now; empty where libpq looks for it itself. May block.

        Raises:
            SecretUnavailableError: the password can't be read.
        """
        if not isinstance(self._password, SecretSource):
            return self._conninfo, self._password or ""
        return self._conninfo, self._password.read_value().decode("utf-8", "surrogateescape")

    def hide(self, text: str) -> str:
        """A text of libpq's without the password of the URL."""
        for each in self._secrets:
            text = text.replace(each, _HIDDEN)
        return text


def is_url(store: str) -> bool:
    """Whether `store` names a database rather than being a word."""
    return "://" in store


def read_database(table: JournalTable, source: TomlSource, folder: Path) -> Database | None:
    """The database that `[journal]` names. None: it names none.

    Raises:
        ConfigError: the URL is none, or there are two passwords.
    """
    key = ("journal", "store")
    if not is_url(table.store):
        if table.password is not None:
            problem = "a password is for a journal in PostgreSQL"
            raise source.problem(("journal", "password"), problem, 'remove it, or write store = "postgresql://…"')
        return None
    hint = 'write "postgresql://user@host:5432/database"'
    try:
        parts = urlsplit(table.store)
        label, secrets = _without_secrets(table.store)
    except ValueError as exc:
        raise source.problem(key, f"`store` in [journal] is no URL: {exc}", hint) from exc
    if parts.scheme not in SCHEMES or parts.fragment or not label.isprintable():
        raise source.problem(key, f'`store` in [journal] is no URL of PostgreSQL: "{printable(label)}"', hint)
    if table.password is None:
        return Database(table.store)
    if secrets:
        raise source.problem(
            ("journal", "password"), "the URL in `store` has a password, too", "take it out of the URL"
        )
    return Database(table.store, secret_source("journal.password", table.password, source, folder))


def _without_secrets(url: str) -> tuple[str, tuple[str, ...]]:
    """The URL to be shown, and what was taken out of it, as it is and as the URL has it."""
    parts = urlsplit(url)
    found = [each for each in (parts.password,) if each]
    user, at, host = parts.netloc.rpartition("@")
    query = parse_qsl(parts.query, keep_blank_values=True)
    found += [value for name, value in query if name in _SECRET_PARAMETERS and value]
    kept = urlencode([each for each in query if each[0] not in _SECRET_PARAMETERS], quote_via=quote)
    shown = urlunsplit((parts.scheme, user.partition(":")[0] + at + host, parts.path, kept, ""))
    # urlunsplit leaves an empty host's slashes out.
    return shown if parts.netloc else shown.replace(":", "://", 1).replace(":////", ":///"), tuple(found)


def _parameters(url: str) -> dict[str, str]:
    """Parameters of a URL as libpq reads them, which takes a + for what it is, and the host before them."""
    parts = urlsplit(url)
    found = {"host": unquote(parts.netloc.rpartition("@")[2])}
    for each in parts.query.split("&"):
        name, _, value = each.partition("=")
        found[unquote(name)] = unquote(value)
    return found
