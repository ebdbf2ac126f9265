"""A TCP relay in front of a sidecar's unix socket whose connections a test breaks: closed, refused, or silent."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator


class Relay:
    """One that relays, in a thread of its own."""

    def __init__(self, target: str) -> None:
        """`target`: a sidecar's `unix:PATH`."""
        self._path = target.removeprefix("unix:")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._woken, self._wake = socket.socketpair()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._silent: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_cut = self._is_over = False
        self._thread = threading.Thread(target=self._relay, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Reset all connections. New ones are closed at once until `mend`."""
        with self._lock:
            self._is_cut = True
            for each in [*self._pairs]:
                self._drop(each)
        self._wake.send(b"x")

    def mend(self) -> None:
        """Relay new connections again."""
        self._is_cut = False

    def silence(self) -> None:
        """Let nothing more through on the connections that there are, and close none: new ones are relayed."""
        with self._lock:
            self._silent |= {*self._pairs}
        self._wake.send(b"x")

    def close(self) -> None:
        self._is_over = True
        self.cut()
        self._thread.join(10)
        for each in (self._listener, self._woken, self._wake):
            each.close()

    def _relay(self) -> None:
        while not self._is_over:
            with self._lock:
                heard = [each for each in self._pairs if each not in self._silent]
            try:
                ready = select.select([self._listener, self._woken, *heard], [], [])[0]
            except (ValueError, OSError):  # `cut` closed some of them since
                continue
            for each in ready:
                if each is self._woken:
                    each.recv(64)
                elif each is self._listener:
                    self._accept()
                else:
                    self._pass_on(each)

    def _accept(self) -> None:
        accepted, _ = self._listener.accept()
        if self._is_cut:
            accepted.close()
            return
        theirs = socket.socket(socket.AF_UNIX)
        try:
            theirs.connect(self._path)
        except OSError:  # the sidecar is away
            accepted.close()
            theirs.close()
            return
        with self._lock:
            if not self._is_cut:  # by now
                self._pairs |= {accepted: theirs, theirs: accepted}
                return
        accepted.close()
        theirs.close()

    def _pass_on(self, source: socket.socket) -> None:
        with self._lock:  # so that nothing which is sent after `silence` or `cut` is read here
            other = self._pairs.get(source)
            if other is None or source in self._silent:  # since `select` was asked for it
                return
            try:
                data = source.recv(65_536)
            except OSError:
                data = b""
            if not data:
                self._drop(source)
                return
        try:
            other.sendall(data)
        except OSError:
            with self._lock:
                self._drop(source)

    def _drop(self, one: socket.socket) -> None:
        other = self._pairs.pop(one, None)
        if other is None:
            return
        self._pairs.pop(other, None)
        for each in (one, other):
            self._silent.discard(each)
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@contextlib.contextmanager
def relay(target: str) -> Iterator[Relay]:
    """One for the block."""
    made = Relay(target)
    try:
        yield made
    finally:
        made.close()
