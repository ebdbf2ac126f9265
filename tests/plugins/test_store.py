"""The store of copies: what is put there, what damages it, who may remove it."""

from __future__ import annotations

import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fumehood_server.errors import ConfigError, PluginInvalidError
from fumehood_server.plugins.store import CopyDamagedError, LiveFolders, PluginStore, folder_digest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "plugin"
    (root / "lib/deep").mkdir(parents=True)
    (root / "plugin.toml").write_text("a")
    (root / "lib/deep/code.py").write_text("b")
    (root / "run").write_text("c")
    (root / "run").chmod(0o700)
    (root / "link").symlink_to("lib/deep/code.py")
    for name in (".git/config", "__pycache__/code.pyc", ".venv/lib/x.py", "lib/code.py.swp"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    return root


@pytest.fixture
def store(tmp_path: Path) -> PluginStore:
    return PluginStore(tmp_path / "state/plugins")


def names(copy: Path) -> list[str]:
    return sorted(str(each.relative_to(copy)) for each in copy.rglob("*"))


def test_a_copy_holds_what_is_pinned_and_nothing_else(folder: Path, store: PluginStore) -> None:
    (folder / "empty").mkdir()
    stored = store.put(folder)
    assert stored.digest == folder_digest(folder)
    assert names(stored.path) == ["lib", "lib/deep", "lib/deep/code.py", "link", "plugin.toml", "run"]
    assert (stored.path / "link").readlink() == Path("lib/deep/code.py")
    assert (stored.path / "lib/deep/code.py").read_text() == "b"


def test_a_copy_can_be_read_by_every_user_and_written_by_none(folder: Path, store: PluginStore) -> None:
    (folder / "plugin.toml").chmod(0o600)
    (folder / "lib").chmod(0o700)
    copy = store.put(folder).path
    modes = {name: stat.S_IMODE((copy / name).stat().st_mode) for name in (".", "lib", "plugin.toml", "run")}
    assert modes == {".": 0o555, "lib": 0o555, "plugin.toml": 0o444, "run": 0o555}


def test_a_copy_is_made_once_for_each_digest(folder: Path, store: PluginStore, tmp_path: Path) -> None:
    first = store.put(folder)
    inode = first.path.stat().st_ino
    os.utime(folder / "plugin.toml", (1, 1))
    (folder / ".pytest_cache").mkdir()
    (folder / ".pytest_cache/x").touch()
    elsewhere = shutil.copytree(folder, tmp_path / "elsewhere", symlinks=True)
    assert store.put(folder) == store.put(elsewhere) == first
    assert first.path.stat().st_ino == inode
    (folder / "lib/deep/code.py").write_text("c")
    assert store.put(folder) != first
    assert (first.path / "lib/deep/code.py").read_text() == "b"


def test_what_shares_an_inode_with_the_folder_does_not_reach_the_copy(
    folder: Path, store: PluginStore, tmp_path: Path
) -> None:
    (tmp_path / "granted.py").hardlink_to(folder / "lib/deep/code.py")
    stored = store.put(folder)
    (tmp_path / "granted.py").write_text("changed")
    assert (folder / "lib/deep/code.py").read_text() == "changed"
    assert (stored.path / "lib/deep/code.py").read_text() == "b"
    store.verify(stored.digest)


@pytest.mark.parametrize("damage", ["edited", "added", "gone", "executable", "all gone"])
def test_a_damaged_copy_is_found_and_made_anew(folder: Path, store: PluginStore, damage: str) -> None:
    stored = store.put(folder)
    store.verify(stored.digest)
    stored.path.chmod(0o755)
    code = stored.path / "plugin.toml"
    code.chmod(0o644)
    if damage == "edited":
        code.write_text("z")
    elif damage == "added":
        (stored.path / "__pycache__").mkdir()
        (stored.path / "__pycache__/x.pyc").touch()
    elif damage == "gone":
        code.unlink()
    elif damage == "executable":
        code.chmod(0o755)
    else:
        shutil.rmtree(stored.path)
    with pytest.raises(CopyDamagedError):
        store.verify(stored.digest)
    assert store.put(folder) == stored
    store.verify(stored.digest)


def test_an_unfinished_copy_is_never_used_and_goes_with_the_next_collection(folder: Path, store: PluginStore) -> None:
    kept = store.put(folder)
    root = kept.path.parent
    (root / ".new-left").mkdir()
    (root / ".new-left/plugin.toml").touch()
    (root / ".old-left").mkdir()
    (root / "somebody's").mkdir()
    assert store.collect({kept.digest}) == ()
    assert sorted(each.name for each in root.iterdir()) == [kept.path.name, "somebody's"]


def test_a_copy_goes_when_nobody_keeps_it_and_not_while_another_sidecar_has_it(
    folder: Path, store: PluginStore
) -> None:
    stored = store.put(folder)
    other = PluginStore(stored.path.parent)
    other.put(folder)
    assert store.collect(()) == ()
    store.verify(stored.digest)
    other.close()
    assert store.collect({stored.digest}) == ()
    assert store.collect(()) == (stored.digest,)
    assert list(stored.path.parent.iterdir()) == []
    assert store.put(folder) == stored


def test_many_who_put_one_folder_at_once_get_one_copy(folder: Path, store: PluginStore) -> None:
    stores = [PluginStore(store.path("x").parent) for _ in range(4)]
    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(lambda number: stores[number % 4].put(folder), range(16)))
    assert len(found) == 1
    (stored,) = found
    assert [each.name for each in stored.path.parent.iterdir()] == [stored.path.name]
    store.verify(stored.digest)


def test_a_folder_that_changes_while_it_is_copied_is_stored_under_the_digest_of_its_copy(
    folder: Path, store: PluginStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.symlink

    def symlink(*arguments: object) -> None:
        real(*arguments)  # type: ignore[arg-type] - as they come
        (folder / "lib/deep/code.py").write_text("changed meanwhile")

    monkeypatch.setattr(os, "symlink", symlink)
    before = folder_digest(folder)
    stored = store.put(folder)
    store.verify(stored.digest)
    assert stored.digest == folder_digest(folder)
    assert stored.digest != before


def test_a_store_that_cannot_be_written_says_so(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="can't keep a plugin's copy"):
        PluginStore(tmp_path / "file/plugins").put(folder)


def test_a_live_folder_is_served_where_it_lies_and_takes_no_worker_once_it_has_changed(folder: Path) -> None:
    live = LiveFolders()
    stored = live.put(folder)
    assert stored.path == folder
    live.verify(stored.digest)
    (folder / ".pytest_cache").mkdir()
    live.verify(stored.digest)
    (folder / "lib/deep/code.py").write_text("c")
    with pytest.raises(CopyDamagedError):
        live.verify(stored.digest)
    live.verify(live.put(folder).digest)


def test_a_folder_that_is_refused_leaves_no_copy_behind(folder: Path, store: PluginStore) -> None:
    kept = store.put(folder)
    (folder / "out").symlink_to("../../etc/passwd")
    with pytest.raises(PluginInvalidError, match="symlink out of"):
        store.put(folder)
    assert [each.name for each in kept.path.parent.iterdir()] == [kept.path.name]
