"""Content-addressed copies of plugins (`PluginSources`): written beside, synced, renamed into place, read-only.

    ROOT/sha256-HEX    one copy, mode 0555 and below; its digest is its name
    ROOT/.new-*        being written
    ROOT/.old-*        being removed

Whoever uses or writes a copy holds an flock(2) on its folder, which the kernel lets go of when the process ends:
several sidecars can share a root, and what is held by nobody is a leftover.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from fumehood_server.errors import ConfigError, FumehoodError, PluginInvalidError
from fumehood_server.plugins.store.digest import copy_digest, folder_digest
from fumehood_server.plugins.store.interface import Stored
from fumehood_server.plugins.store.tree import Entry, opened_tree

_NEW, _OLD, _COPY = ".new-", ".old-", "sha256-"
_TRAVERSABLE = 0o711
"""A plugin's user must reach its copy where nothing can be mounted, and need not see the others."""
_ROOT_WAIT_S = 10.0
"""Others hold the root's lock for as long as it takes to rename, or to verify one copy."""
_ROOT_POLL_S = 0.005
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class CopyDamagedError(FumehoodError):
    """What a plugin is run from is not what was read. Somebody who may write to the sidecar's state changed it."""


class PluginStore:
    """The copies in one folder. Made with the first `put`; see `PluginSources`."""

    def __init__(self, root: Path) -> None:
        """`root` is the sidecar's own folder, which no plugin is granted."""
        self._root = root
        self._lock = threading.Lock()
        self._held: dict[str, int] = {}

    def path(self, digest: str) -> Path:
        """Where the copy with this digest lies, or would."""
        return self._root / digest.replace(":", "-")

    def put(self, folder: Path) -> Stored:
        """See `PluginSources`. A copy that is there already is verified, and replaced where it is damaged."""
        digest = folder_digest(folder)
        try:
            self._make_root()
            with self._lock, self._root_locked():
                held = self._hold(digest)
            if not (held and self._is_whole(digest)):
                digest = self._copy(folder)
        except OSError as exc:
            hint = "make state_dir writable, with room for what plugins hold"
            raise ConfigError(self._root, f"can't keep a plugin's copy: {exc.strerror}", hint=hint) from exc
        return Stored(digest, self.path(digest))

    def verify(self, digest: str) -> None:
        """See `PluginSources`."""
        try:
            found = copy_digest(self.path(digest))
        except PluginInvalidError as exc:
            raise CopyDamagedError(str(exc)) from exc
        if found != digest:
            raise CopyDamagedError(f"{self.path(digest)} is not as it was copied")

    def collect(self, keep: Collection[str]) -> tuple[str, ...]:
        """See `PluginSources`."""
        with self._lock:
            for digest in self._held.keys() - set(keep):
                os.close(self._held.pop(digest))
        unused: dict[str, tuple[Path, int]] = {}
        with contextlib.suppress(FileNotFoundError), self._root_locked():
            for name in os.listdir(self._root):  # noqa: PTH208 - names alone
                if name.startswith((_NEW, _OLD)) or (name.startswith(_COPY) and name.replace("-", ":") not in keep):
                    descriptor = _lock_unused(self._root / name)
                    if descriptor is not None:
                        unused[name] = (self._put_aside(self._root / name), descriptor)
        for path, descriptor in unused.values():
            _remove(path)
            os.close(descriptor)
        return tuple(sorted(name.replace("-", ":") for name in unused if name.startswith(_COPY)))

    def close(self) -> None:
        """See `PluginSources`."""
        with self._lock:
            while self._held:
                os.close(self._held.popitem()[1])

    def _make_root(self) -> None:
        self._root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            self._root.mkdir()
            self._root.chmod(_TRAVERSABLE)

    @contextlib.contextmanager
    def _root_locked(self) -> Iterator[None]:
        """Names in the root change within such a block alone: what was just made has no lock of its own yet."""
        descriptor = os.open(self._root, _FOLDER)
        try:
            _lock_within(descriptor, _ROOT_WAIT_S)
            yield
        finally:
            os.close(descriptor)

    def _hold(self, digest: str) -> bool:
        """Hold the copy, so that nobody removes it. Whether there is one. For a holder of both locks."""
        if digest not in self._held:
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(self.path(digest), _FOLDER)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                self._held[digest] = descriptor
        return digest in self._held

    def _is_whole(self, digest: str) -> bool:
        try:
            self.verify(digest)
        except CopyDamagedError:
            return False
        return True

    def _copy(self, folder: Path) -> str:
        """Copy the folder as it is now, and hold the copy. Returns its digest."""
        with self._root_locked():
            new = Path(tempfile.mkdtemp(prefix=_NEW, dir=self._root))
            descriptor = os.open(new, _FOLDER)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            _write_copy(folder, new)
            digest = copy_digest(new)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            return self._take(new, digest, descriptor)
        except BaseException:
            os.close(descriptor)
            _remove(new)
            raise

    def _take(self, new: Path, digest: str, descriptor: int) -> str:
        """Rename a new copy into place. One that is there already stays if it is whole."""
        with self._lock, self._root_locked():
            if self._hold(digest):
                if self._is_whole(digest):
                    os.close(descriptor)
                    _remove(new)
                    return digest
                os.close(self._held.pop(digest))
            if os.path.lexists(self.path(digest)):
                _remove(self._put_aside(self.path(digest)))
            new.rename(self.path(digest))
            _sync(self._root)
            self._held[digest] = descriptor
        return digest

    def _put_aside(self, path: Path) -> Path:
        return path.rename(self._root / f"{_OLD}{secrets.token_hex(8)}")


@contextlib.contextmanager
def temporary_store() -> Iterator[PluginStore]:
    """A store for as long as the block, for a plugin that is looked at and not served."""
    with tempfile.TemporaryDirectory(prefix="fumehood-check-") as name:
        folder = Path(name)
        folder.chmod(_TRAVERSABLE)
        store = PluginStore(folder / "plugins")
        try:
            yield store
        finally:
            store.close()
            _remove(folder / "plugins")


def _write_copy(folder: Path, copy: Path) -> None:
    """Write the folder's entries, with rights for everybody to read and nobody to write, and sync them."""
    with opened_tree(folder, ignore=True) as entries:
        for entry in entries:
            _write_entry(entry, copy / os.fsdecode(entry.name))
    # After all are written: the file system's journal then takes many at once.
    for path, _, files in os.walk(copy, topdown=False):
        for name in files:
            if not os.path.islink(f"{path}/{name}"):  # noqa: PTH114 - of os.walk
                _sync(f"{path}/{name}")
        _sync(path)
        os.chmod(path, 0o555)  # noqa: PTH101, S103 - of os.walk; plugins have users of their own


def _write_entry(entry: Entry, path: Path) -> None:
    if not path.parent.exists():
        path.parent.mkdir(mode=0o755, parents=True)
    if entry.target:
        os.symlink(entry.target, os.fsencode(path))  # noqa: PTH211 - bytes
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        for chunk in entry.chunks():
            _write_all(descriptor, chunk)
        os.fchmod(descriptor, 0o555 if entry.executable else 0o444)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def _lock_within(descriptor: int, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, f"another process has it locked for {wait_s:g} s") from None
            time.sleep(_ROOT_POLL_S)
        else:
            return


def _lock_unused(path: Path) -> int | None:
    """A lock on a folder that nobody holds; None when somebody does."""
    try:
        descriptor = os.open(path, _FOLDER)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _sync(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    """Remove a folder of the store's, in which nothing may be written."""
    for path, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            os.chmod(path, 0o700)  # noqa: PTH101 - of os.walk
    shutil.rmtree(folder, ignore_errors=True)
