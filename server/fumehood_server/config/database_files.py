"""Files that libpq reads for a connection: keys, certificates, passwords, services (PostgreSQL's manual, chapter 32).

What counts of URL, service, environment and home folder is libpq's to say: what any of them names is protected.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_SECRET = {"passfile": "PGPASSFILE", "sslkey": "PGSSLKEY", "sslkeylogfile": ""}
"""Parameters that name a file with a key or a password, and their variables."""
_PLAIN = {"sslcert": "PGSSLCERT", "sslrootcert": "PGSSLROOTCERT", "sslcrl": "PGSSLCRL", "sslcrldir": "PGSSLCRLDIR"}
"""Those that say who the server is and who the sidecar is."""
_SYSTEM = "system"
"""As `sslrootcert`: the system's own authorities."""
_KERBEROS_SECRET = ("KRB5CCNAME", "KRB5_CLIENT_KTNAME", "KRB5_KTNAME")
_SERVICE_NAME = "pg_service.conf"
_MAX_SERVICE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class DatabaseFiles:
    """Absolute paths. They need not exist."""

    secret: frozenset[Path] = frozenset()
    """Files with keys and passwords: no plugin may read or write them."""
    plain: frozenset[Path] = frozenset()
    """What no plugin may write."""
    sockets: frozenset[Path] = field(default=frozenset())
    """Folders of the server's unix sockets: whoever writes there can put another server in its place."""


def database_files(parameters: Mapping[str, str]) -> DatabaseFiles:
    """The files for a URL's `parameters`, its `host` among them. May read service files."""
    secret, plain, sockets = set[str](), set[str](), set[str]()
    services = _service_files(parameters)
    given = [parameters, _environment(), *_sections(services, parameters.get("service") or os.environ.get("PGSERVICE"))]
    for each in given:
        secret |= {value for name in _SECRET if (value := each.get(name, ""))}
        plain |= {value for name in _PLAIN if (value := each.get(name, "")) and value != _SYSTEM}
        sockets |= {host for host in each.get("host", "").split(",") if host.startswith("/")}
    secret |= {os.environ[name].removeprefix("FILE:") for name in _KERBEROS_SECRET if os.environ.get(name)}
    plain |= {each for each in os.environ.get("KRB5_CONFIG", "").split(":") if each}
    for home in _homes():
        defaults = (home / ".pgpass", home / ".postgresql" / "postgresql.key")
        secret |= {str(each) for each in defaults if each.exists()}
        plain |= {str(home / ".postgresql"), *map(str, defaults)}
    # They can hold passwords. One that isn't there could be put there.
    secret |= {str(each) for each in services if each.exists()}
    plain |= set(map(str, services))
    return DatabaseFiles(_absolute(secret), _absolute(plain - secret), _absolute(sockets))


def _environment() -> dict[str, str]:
    names = {**_SECRET, **_PLAIN, "host": "PGHOST"}
    return {name: os.environ.get(variable, "") for name, variable in names.items()}


def _service_files(parameters: Mapping[str, str]) -> tuple[Path, ...]:
    folder = os.environ.get("PGSYSCONFDIR")
    named = [parameters.get("servicefile"), os.environ.get("PGSERVICEFILE")]
    return (
        *(Path(each) for each in named if each),
        *((Path(folder) / _SERVICE_NAME,) if folder else ()),
        *(home / f".{_SERVICE_NAME}" for home in _homes()),
    )


def _sections(files: Iterable[Path], service: str | None) -> Iterator[dict[str, str]]:
    """What each of the files says of the service."""
    if not service:
        return
    for file in files:
        try:
            with file.open(encoding="utf-8", errors="surrogateescape") as opened:
                lines = opened.read(_MAX_SERVICE_BYTES).splitlines()
        except OSError:
            continue  # libpq says so when it connects
        found, within = dict[str, str](), False
        for line in map(str.strip, lines):
            if line.startswith("["):
                within = line == f"[{service}]"
            elif within and "=" in line and not line.startswith("#"):
                name, _, value = line.partition("=")
                found[name.strip()] = value.strip()
        yield found


def _homes() -> set[Path]:
    """HOME, and the folder of the user's entry: which one counts depends on libpq's version."""
    named = {os.environ.get("HOME", "")}
    with contextlib.suppress(KeyError):  # a user without an entry, as in containers
        named.add(pwd.getpwuid(os.geteuid()).pw_dir)
    return {Path(each) for each in named if each.startswith("/")}


def _absolute(paths: Iterable[str]) -> frozenset[Path]:
    return frozenset(Path(os.path.abspath(each)) for each in paths if "\0" not in each)  # noqa: PTH100 - links stay


__all__ = ["DatabaseFiles", "database_files"]
