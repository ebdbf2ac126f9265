"""A PostgreSQL server of Debian's packages, for one process of pytest's: in a folder of its own, on a unix socket."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import psutil
import psycopg
import pytest

_PROGRAMS = Path("/usr/lib/postgresql")
_SETTINGS = ("fsync=off", "listen_addresses=", "max_connections=60", "shared_buffers=32MB", "autovacuum=off")
_WAIT_S = 60


def programs() -> Path | None:
    """The folder of the newest version's programs. None: there are none."""
    found = [each / "bin" for each in _PROGRAMS.glob("*") if (each / "bin" / "initdb").exists()]
    return max(found, key=lambda each: int(each.parent.name), default=None)


def _copy(source: Path | str, to: Path | str) -> None:
    subprocess.run(["/bin/cp", "--archive", str(source), str(to)], check=True)


def _user() -> pwd.struct_passwd:
    """One who has a name, which initdb looks up: Debian's package makes him. No test counts his processes."""
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


class PostgresServer:
    """One that runs, as an ordinary user where the tests run as root: PostgreSQL refuses root."""

    def __init__(self, folder: Path, bin_folder: Path) -> None:
        self.folder = folder
        self._bin = bin_folder
        self._number = 0
        self._user = _user() if os.geteuid() == 0 else None

    def make(self, kept: Path) -> None:
        """Make its files, or copy those that another test's server has left in `kept` before it began. Start it."""
        self.folder.chmod(0o755)
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        kept.mkdir(exist_ok=True)
        with (kept / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (kept / "done").exists():
                options = ("-U", "fumehood", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1")
                self._run("initdb", "-D", self._data, *options)
                _copy(self._data, kept / "data")
                (kept / "done").touch()
            else:
                _copy(kept / "data", self._data)
        self.start()

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def start(self, *settings: str) -> None:
        """Start it; it takes connections when this returns. `settings`: `name=value`."""
        options = " ".join(f"-c {each}" for each in (*_SETTINGS, f"unix_socket_directories={self.folder}", *settings))
        log = str(self.folder / "log")
        self._run("pg_ctl", "start", "-D", self._data, "-w", "-t", str(_WAIT_S), "-l", log, "-o", options)

    def stop(self, mode: str = "immediate") -> None:
        """Stop it: `immediate` is as if its machine had lost power, but for what the kernel holds."""
        self._run("pg_ctl", "stop", "-D", self._data, "-w", "-t", str(_WAIT_S), "-m", mode)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """All its processes are stopped (SIGSTOP)."""
        process = psutil.Process(int((self.folder / "data" / "postmaster.pid").read_text().split()[0]))
        process.send_signal(signal.SIGSTOP)
        all_of_it = [process, *process.children(recursive=True)]
        try:
            for each in all_of_it[1:]:
                each.send_signal(signal.SIGSTOP)
            yield
        finally:
            for each in all_of_it:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.send_signal(signal.SIGCONT)

    def new_database(self, *, template: str = "") -> str:
        """The URL of an empty database, or of a copy of one that nobody uses."""
        self._number += 1
        name = f"journal_{os.getpid()}_{self._number}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            source = urlsplit(template).path.removeprefix("/") or "template0"
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{source}"')
        return self.url(name)

    def url(self, database: str) -> str:
        return f"postgresql://fumehood@/{database}?host={quote(str(self.folder), safe='')}"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), *arguments]
        if self._user is not None:
            # Not by subprocess's `user`, with which it forks rather than vforks: gRPC's threads are at work in this
            # process, and its handlers of forks have ended such a child.
            as_user = ("--reuid", str(self._user.pw_uid), "--regid", str(self._user.pw_gid), "--clear-groups")
            command = ["/usr/bin/setpriv", *as_user, *command]
        with tempfile.TemporaryFile() as said:  # no pipe: the server would keep it open
            done = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
                timeout=2 * _WAIT_S,
            )
            said.seek(0)
            log = self.folder / "log"
            text = said.read().decode() + (log.read_text()[-2000:] if log.exists() else "")
        assert done.returncode == 0, f"{program}: {text}"


def kept_files(factory: pytest.TempPathFactory) -> Path:
    """Where all processes of a run of pytest's find the files that the first of them has made, which takes a second."""
    base = factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "postgresql"


@contextlib.contextmanager
def running_server(kept: Path | None = None) -> Iterator[PostgresServer]:
    """One in a temporary folder, which is gone when the block ends. `kept`: see `kept_files`."""
    bin_folder = programs()
    if bin_folder is None:
        pytest.skip("no PostgreSQL server is installed, and `make setup` may not install one here")
    folder = Path(tempfile.mkdtemp(prefix="fh-pg-"))
    server = PostgresServer(folder, bin_folder)
    try:
        server.make(kept or folder / "kept")
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
