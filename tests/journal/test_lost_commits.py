"""A commit in PostgreSQL whose answer is lost on its way: what was committed is neither written twice nor forgotten."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from fumehood_server.config.database import Database
from fumehood_server.journal.checkpoints import Checkpointer
from fumehood_server.journal.place import DatabasePlace
from fumehood_server.journal.retention import prune_events_slice
from fumehood_server.journal.store import StoreError

from tests.postgresql import PostgresServer

from .bench import STARTED_US, entries
from .several import ONE, OTHER, assert_whole, call, refused


class Proxy:
    """Between a sidecar and the server: it may swallow the server's answer to the next commit."""

    def __init__(self, folder: Path, target: Path) -> None:
        self.loses_commits = False
        self._target = str(target)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._open = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                self._open += [client, server]
                server.connect(self._target)
                threading.Thread(target=self._forward, args=(client, server, True), daemon=True).start()
                threading.Thread(target=self._forward, args=(server, client, False), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, from_client: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                if not from_client and self.loses_commits and b"COMMIT\0" in data:
                    self.loses_commits = False
                    break
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@pytest.fixture
def behind_proxy(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[tuple[Proxy, DatabasePlace]]:
    url = postgres_server.new_database()
    folder = tmp_path / "p"
    folder.mkdir()
    with contextlib.closing(Proxy(folder, postgres_server.folder / ".s.PGSQL.5432")) as proxy:
        host = quote(str(folder), safe="")
        yield proxy, DatabasePlace(Database(f"{url.partition('?')[0]}?host={host}"), window_s=3600.0)


def test_what_is_committed_and_not_said_so_is_not_written_twice(behind_proxy: tuple[Proxy, DatabasePlace]) -> None:
    proxy, place = behind_proxy
    store = place.open_store("one")
    store.write(call("first"))
    group = [*call("a"), *call("b")[:1]]
    proxy.loses_commits = True
    with pytest.raises(StoreError):
        store.write(group)
    store.close()
    group += call("b")[1:]
    for turn in range(2):
        store = place.open_store("one")
        if not turn:  # and once more: it is cut off again before it comes to write the rest
            proxy.loses_commits = True
            with pytest.raises(StoreError):
                store.write(group)
            store.close()
            continue
        store.write(group)
        store.write(call("c"))
        Checkpointer(ONE)(store)
        store.close()
    assert refused(group) == [""] * 6
    assert_whole(place, 12, ONE)


def test_what_is_committed_and_removed_before_that_is_known_is_not_written_again(
    behind_proxy: tuple[Proxy, DatabasePlace],
) -> None:
    proxy, place = behind_proxy
    group = [each for number in range(100) for each in call(f"doubt-{number}")]
    with contextlib.closing(place.open_store("one")) as store:
        proxy.loses_commits = True
        with pytest.raises(StoreError):
            store.write(group)
    with contextlib.closing(place.open_store("other")) as other:
        other.write([*entries(200)])
        assert prune_events_slice(other, STARTED_US * 2, sidecar="0b") == 768
        Checkpointer(OTHER)(other)
    with contextlib.closing(place.open_store("one")) as store:
        assert store.write(group) == 902
    assert refused(group) == [""] * 300
    assert_whole(place, 902, OTHER)
