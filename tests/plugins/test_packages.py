"""Archives of plugins: what is unpacked, and what is refused before anything is written outside."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from fumehood_server.errors import PluginInvalidError
from fumehood_server.plugins.packages import archive as archives
from fumehood_server.plugins.packages.installed import install

from tests.cli.wheels import archive, packaged, plugin_files, wheel

_LINK = 0o120777


def outcome(path: Path, folder: Path) -> str:
    """The folder's files, or why nothing was unpacked."""
    before = set((folder / "state").rglob("*"))
    try:
        installed = install(path, folder / "state")
    except PluginInvalidError as error:
        assert set((folder / "state").rglob("*")) - before <= {folder / "state", folder / "state/installed"}
        return error.problem
    return " ".join(sorted(each.name for each in installed.folder.rglob("*")))


def test_names_that_lead_out_of_the_folder_are_refused_and_write_nothing(tmp_path: Path) -> None:
    files = plugin_files()
    assert outcome(archive(tmp_path / "good.zip", {**files, "a/b.txt": "x"}), tmp_path) == "a b.txt code.py plugin.toml"
    before = sorted(tmp_path.rglob("*"))
    for name in ("../up", "/abs", "a/../../up", "a\\..\\up", "a//b", "./a", "..", "nul\0name"):
        path = tmp_path / "bad.zip"
        archive(path, {**files, "N" * len(name): "x"})
        path.write_bytes(path.read_bytes().replace(b"N" * len(name), name.encode()))
        with pytest.raises(PluginInvalidError, match="leads out of the folder, or is no path"):
            install(path, tmp_path / "state")
        path.unlink()
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_is_written_through_a_symlink_of_the_archive(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    files = plugin_files()
    beneath = {"link": str(outside), "link/file": "x", **files}
    assert "lies within a file" in outcome(archive(tmp_path / "a.zip", beneath, modes={"link": _LINK}), tmp_path)
    leading_out = {"link": "../../../outside", **files}
    with pytest.raises(PluginInvalidError, match="symlink out of the plugin's folder"):
        install(archive(tmp_path / "b.zip", leading_out, modes={"link": _LINK}), tmp_path / "state")
    assert list(outside.iterdir()) == []
    within = archive(tmp_path / "c.zip", {"link": "code.py", **files}, modes={"link": _LINK})
    assert outcome(within, tmp_path) == "code.py link plugin.toml"


def test_special_files_double_names_and_collisions_are_refused(tmp_path: Path) -> None:
    files = plugin_files()
    fifo = archive(tmp_path / "fifo.zip", {**files, "pipe": ""}, modes={"pipe": 0o010644})
    assert "special file" in outcome(fifo, tmp_path)
    assert "lies within a file" in outcome(archive(tmp_path / "in.zip", {**files, "a": "", "a/b": ""}), tmp_path)
    twice = tmp_path / "twice.zip"
    with zipfile.ZipFile(archive(twice, files), "a") as written, pytest.warns(UserWarning, match="Duplicate"):
        written.writestr("code.py", "other")
    assert "stands there twice" in outcome(twice, tmp_path)


def test_what_an_archive_holds_is_counted_as_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_BYTES", 64 * 1024)
    fits = archive(tmp_path / "fits.zip", {**plugin_files(), "zeros": b"\0" * 60_000})
    assert "zeros" in outcome(fits, tmp_path)
    bomb = archive(tmp_path / "bomb.zip", {**plugin_files(), "zeros": b"\0" * 66_000})
    assert bomb.stat().st_size < 2000
    assert "goes over the limit" in outcome(bomb, tmp_path)


def test_damaged_and_foreign_files_are_told_as_such(tmp_path: Path) -> None:
    path = archive(tmp_path / "cut.zip", plugin_files())
    raw = path.read_bytes()
    for content in (b"", b"not an archive", raw[:-30], raw + b"more", raw[:60] + b"****" + raw[64:]):
        path.write_bytes(content)
        with pytest.raises(PluginInvalidError):
            install(path, tmp_path / "state")
    path.write_bytes(raw)
    assert outcome(path, tmp_path) == "code.py plugin.toml"


def test_wheels_without_exactly_one_plugin_say_what_they_need(tmp_path: Path) -> None:
    files = {f"p/{name}": text for name, text in plugin_files().items()}
    assert outcome(packaged(tmp_path / "good"), tmp_path) == "code.py plugin.toml"
    points = {
        "": "holds no plugin",
        "[console_scripts]\na = p:main\n": "holds no plugin",
        "[fumehood.plugins]\na = p\nb = p\n": "holds 2 plugins",
        "[fumehood.plugins]\na = q\n": 'has no "q/plugin.toml"',
        "[fumehood.plugins]\na = ../p\n": "is no object",
        "[fumehood.plugins\n": "can't be read",
    }
    told = {text: outcome(wheel(tmp_path / "bad", files, text), tmp_path / "other") for text in points}
    assert {text: problem for text, problem in points.items() if problem not in told[text]} == {}
