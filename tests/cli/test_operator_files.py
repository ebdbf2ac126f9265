"""Files of the operator's as commands change them: at the same time, through symlinks, and only what is theirs."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from fumehood_sandbox import Level
from fumehood_server.cli.config_edit import Entry, append_entry
from fumehood_server.cli.plugin_source import opened_source
from fumehood_server.config.load import load_config

from tests.cli.command import fumehood
from tests.cli.wheels import packaged
from tests.sidecar import write_plugin

CODE = """
from fumehood_sdk import Plugin
plugin = Plugin("{name}", version="1.0.0")
@plugin.tool(side_effects="none")
def {name}_do() -> int:
    "Do nothing."
    return 1
"""
AT_ONCE = 4


def plugin(folder: Path, name: str) -> Path:
    return write_plugin(folder / name, name, CODE.format(name=name))


def pinned(folder: Path) -> list[str]:
    return sorted(json.loads((folder / "fumehood.lock").read_text())["plugins"])


def test_plugins_that_are_added_and_removed_at_the_same_time_are_all_there_or_gone(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(2 * AT_ONCE)]
    for name in names:
        plugin(tmp_path, name)
    first, then = names[:AT_ONCE], names[AT_ONCE:]
    with ThreadPoolExecutor(2 * AT_ONCE) as threads:
        done = [*threads.map(lambda name: fumehood("plugin", "add", name, "--yes", folder=tmp_path), first)]
        assert [each.status for each in done] == [0] * AT_ONCE, done
        assert sorted(each.path.name for each in load_config(tmp_path / "fumehood.toml").plugins) == first
        adding = [threads.submit(fumehood, "plugin", "add", name, "--yes", folder=tmp_path) for name in then]
        removing = [threads.submit(fumehood, "plugin", "remove", name, folder=tmp_path) for name in first]
        done = [each.result() for each in (*adding, *removing)]
    assert [each.status for each in done] == [0] * len(names), done
    assert sorted(each.path.name for each in load_config(tmp_path / "fumehood.toml").plugins) == then
    assert pinned(tmp_path) == then


def test_what_a_symlink_leads_to_is_changed_and_the_symlink_and_line_ends_stay(tmp_path: Path) -> None:
    real, here = tmp_path / "real", tmp_path / "here"
    real.mkdir()
    here.mkdir()
    (real / "fumehood.toml").write_bytes(b'[server]\r\nlisten = ["unix:s"]\r\n')
    (real / "fumehood.lock").write_text('{"plugins": {}, "version": 1}\n')
    for name in ("fumehood.toml", "fumehood.lock"):
        (here / name).symlink_to(real / name)
    added = fumehood("plugin", "add", plugin(tmp_path, "p1"), "--yes", folder=here)
    assert added.status == 0, added.stderr
    assert (here / "fumehood.toml").is_symlink()
    text = (real / "fumehood.toml").read_bytes()
    assert text.startswith(b'[server]\r\nlisten = ["unix:s"]\r\n')
    assert b"p1" in text
    assert pinned(real) == ["p1"]
    removed = fumehood("plugin", "remove", "p1", folder=here)
    assert (removed.status, (here / "fumehood.toml").is_symlink(), pinned(real)) == (0, True, []), removed.stderr


def test_lock_that_is_a_symlink_to_nothing_is_refused_and_not_made_anew(tmp_path: Path) -> None:
    plugin(tmp_path, "p1")
    (tmp_path / "fumehood.lock").symlink_to(tmp_path / "mounted" / "fumehood.lock")
    done = fumehood("plugin", "add", "p1", "--yes", "--json", folder=tmp_path)
    assert done.status != 0
    assert "symlink that leads nowhere" in done.error["message"]
    assert (tmp_path / "fumehood.lock").is_symlink()
    (tmp_path / "mounted").mkdir()
    (tmp_path / "mounted" / "fumehood.lock").write_text('{"plugins": {}, "version": 1}\n')
    done = fumehood("plugin", "add", "p1", "--yes", folder=tmp_path)
    assert (done.status, pinned(tmp_path / "mounted")) == (0, ["p1"]), done.stderr
    assert (tmp_path / "fumehood.lock").is_symlink()


def test_path_that_is_not_utf_8_is_refused_by_name(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/o\xffdd"))
    write_plugin(folder, "odd", CODE.format(name="odd"))
    done = fumehood("plugin", "add", folder, "--yes", folder=tmp_path)
    assert (done.status, "UTF-8" in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr
    assert not (tmp_path / "fumehood.toml").exists()


def test_what_was_unpacked_stays_where_another_command_has_named_it_meanwhile(tmp_path: Path) -> None:
    wheel, path = packaged(tmp_path / "dist"), tmp_path / "fumehood.toml"
    path.write_text("")
    config = replace(load_config(path), path=path)
    with opened_source(str(wheel), config, quiet=True) as source:
        assert source.folder.is_dir()
    assert not source.folder.exists(), "control: nobody has named it"
    with opened_source(str(wheel), config, quiet=True) as source:
        append_entry(path, Entry(folder=source.folder, max_side_effects=None, asks_for=Level.NONE))
    assert source.folder.is_dir()


def test_pack_replaces_a_file_and_nothing_that_is_none(tmp_path: Path) -> None:
    folder = plugin(tmp_path, "p1")
    pipe, output = tmp_path / "pipe.zip", tmp_path / "p1.zip"
    os.mkfifo(pipe)
    done = fumehood("plugin", "pack", folder, "-o", pipe, folder=tmp_path)
    assert (done.status, "no regular file" in done.stderr) == (2, True), done.stderr
    assert pipe.is_fifo()
    output.write_text("old")
    (tmp_path / "link.zip").symlink_to(output)
    done = fumehood("plugin", "pack", folder, "-o", tmp_path / "link.zip", folder=tmp_path)
    assert done.status == 0, done.stderr
    assert (tmp_path / "link.zip").is_symlink()
    assert output.read_bytes().startswith(b"PK")
