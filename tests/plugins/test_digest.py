from __future__ import annotations

import os
import shutil
import socket
import stat
from pathlib import Path

import pytest
from fumehood_server.errors import PluginInvalidError
from fumehood_server.plugins.store import folder_digest
from fumehood_server.plugins.store.tree import MAX_DEPTH
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "plugin"
    (root / "lib").mkdir(parents=True)
    (root / "plugin.toml").write_text("a")
    (root / "lib/code.py").write_text("b")
    (root / "link").symlink_to("lib/code.py")
    return root


def test_the_same_files_elsewhere_and_at_another_time_have_the_same_digest(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, symlinks=True)
    os.utime(copy / "plugin.toml", (1, 1))
    (copy / "plugin.toml").chmod(0o600)
    assert folder_digest(copy) == folder_digest(folder)
    assert folder_digest(folder).startswith("sha256:")


def _edit(folder: Path) -> None:
    (folder / "lib/code.py").write_text("c")


def _rename(folder: Path) -> None:
    (folder / "lib/code.py").rename(folder / "lib/code2.py")


def _move(folder: Path) -> None:
    (folder / "lib/code.py").rename(folder / "code.py")


def _add(folder: Path) -> None:
    (folder / ".hidden").touch()


def _mark(folder: Path) -> None:
    (folder / "lib/code.py").chmod(0o755)


def _turn(folder: Path) -> None:
    (folder / "link").unlink()
    (folder / "link").symlink_to("plugin.toml")


def _materialise(folder: Path) -> None:
    (folder / "link").unlink()
    (folder / "link").write_text("lib/code.py")


@pytest.mark.parametrize("change", [_edit, _rename, _move, _add, _mark, _turn, _materialise])
def test_any_change_that_matters_changes_the_digest(folder: Path, change: object) -> None:
    before = folder_digest(folder)
    assert callable(change)
    change(folder)
    assert folder_digest(folder) != before


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "lib/../../outside", "round"])
def test_a_link_out_of_the_folder_is_refused(folder: Path, target: str) -> None:
    (folder.parent / "outside").write_text("x")
    folder_digest(folder)
    (folder / "round").symlink_to(target)
    with pytest.raises(PluginInvalidError, match="symlink out of the plugin's folder"):
        folder_digest(folder)


def test_an_absolute_link_is_refused_even_into_the_folder(folder: Path) -> None:
    (folder / "here").symlink_to("lib")
    folder_digest(folder)
    (folder / "again").symlink_to(folder / "lib")
    with pytest.raises(PluginInvalidError, match="absolute symlink") as caught:
        folder_digest(folder)
    assert "make it relative" in str(caught.value)


def test_the_interpreter_links_of_a_virtual_environment_that_is_taken_in_are_hashed_as_links(folder: Path) -> None:
    (folder / ".fumehoodignore").write_text("!.venv/\n")
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/python3").symlink_to("/usr/bin/python3")
    before = folder_digest(folder)
    (folder / ".venv/bin/python3").unlink()
    (folder / ".venv/bin/python3").symlink_to("/usr/bin/python4")
    assert folder_digest(folder) != before
    (folder / ".venv/bin/tool").symlink_to("/usr/bin/tool")
    with pytest.raises(PluginInvalidError):
        folder_digest(folder)


def test_a_link_to_a_folder_is_not_followed(folder: Path) -> None:
    (folder / "again").symlink_to(".")
    assert folder_digest(folder)


def test_special_files_are_refused_by_name_and_by_what_they_are(folder: Path) -> None:
    os.mkfifo(folder / "lib/pipe")
    with pytest.raises(PluginInvalidError, match="lib/pipe: is a FIFO"):
        folder_digest(folder)
    (folder / "lib/pipe").unlink()
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(folder / "door"))
        with pytest.raises(PluginInvalidError, match="door: is a socket"):
            folder_digest(folder)
        (folder / ".fumehoodignore").write_text("/door\n")
        assert folder_digest(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a device node")
def test_a_device_is_refused_without_being_opened(folder: Path) -> None:
    os.mknod(folder / "tape", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    with pytest.raises(PluginInvalidError, match="tape: is a character device"):
        folder_digest(folder)


def test_folders_that_lie_too_deep_are_refused(folder: Path) -> None:
    deep = folder
    for _ in range(MAX_DEPTH):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "file").touch()
    folder_digest(folder)
    (deep / "d").mkdir()
    with pytest.raises(PluginInvalidError, match=f"more than {MAX_DEPTH} folders deep"):
        folder_digest(folder)


def test_entries_that_are_ignored_are_counted_too(folder: Path) -> None:
    for number in range(60):
        (folder / f"{number}.swp").touch()
    folder_digest(folder, max_files=7)
    with pytest.raises(PluginInvalidError, match="more than 60 entries to look at"):
        folder_digest(folder, max_files=6)


def test_caps_hold_at_their_very_value(folder: Path) -> None:
    entries, size = 5, len("a") + len("b") + len("lib/code.py")
    folder_digest(folder, max_files=entries, max_bytes=size)
    with pytest.raises(PluginInvalidError, match="more than 4 files"):
        folder_digest(folder, max_files=entries - 1)
    with pytest.raises(PluginInvalidError, match=f"more than {size - 1} bytes"):
        folder_digest(folder, max_bytes=size - 1)


def test_a_folder_that_is_not_there_is_refused(folder: Path) -> None:
    with pytest.raises(PluginInvalidError, match="No such file"):
        folder_digest(folder / "absent")


_FILES = st.dictionaries(
    st.text("abc", min_size=1, max_size=3), st.tuples(st.binary(max_size=8), st.booleans()), max_size=5
)


def _write(root: Path, files: dict[str, tuple[bytes, bool]]) -> Path:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for name, (content, executable) in files.items():
        (root / name).write_bytes(content)
        (root / name).chmod(0o755 if executable else 0o644)
    return root


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(_FILES, _FILES)
def test_folders_have_equal_digests_exactly_when_they_are_equal(
    tmp_path: Path, one: dict[str, tuple[bytes, bool]], other: dict[str, tuple[bytes, bool]]
) -> None:
    digests = [folder_digest(_write(tmp_path / "x", files)) for files in (one, other)]
    reordered = dict(reversed(one.items()))
    assert folder_digest(_write(tmp_path / "y", reordered)) == digests[0]
    assert (digests[0] == digests[1]) == (one == other)
