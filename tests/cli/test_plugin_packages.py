"""`fumehood plugin add` of wheels, packed files and NAME==VERSION; `pack`, `remove` and `upgrade`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from fumehood_server.plugins.store import folder_digest

from tests.cli.command import fumehood
from tests.cli.wheels import CODE, packaged, plugin_files, wheel
from tests.sidecar import running_sidecar


def lock(folder: Path) -> dict[str, dict[str, object]]:
    plugins = json.loads((folder / "fumehood.lock").read_text())["plugins"]
    assert isinstance(plugins, dict)
    return plugins


def test_add_unpacks_and_pins_a_wheel_s_package_without_its_metadata(tmp_path: Path) -> None:
    path = packaged(tmp_path / "dist")
    done = fumehood("plugin", "add", path, "--yes", "--json", folder=tmp_path)
    assert done.status == 0, done.stderr
    folder = tmp_path / ".fumehood/installed/greets-1.0.0"
    assert sorted(each.name for each in folder.iterdir()) == ["code.py", "plugin.toml"]
    assert 'path = ".fumehood/installed/greets-1.0.0"' in (tmp_path / "fumehood.toml").read_text()
    assert (done.json["pinned"], done.json["origin"]) == (True, lock(tmp_path)["greets"]["origin"])
    assert done.json["origin"]["file"] == path.name
    again = fumehood("plugin", "add", path, folder=tmp_path)
    assert (again.status, "Exactly this is pinned already." in again.stdout) == (0, True), again.stderr
    assert [each.name for each in folder.parent.iterdir()] == ["greets-1.0.0"]


def test_add_writes_the_manifest_of_a_wheel_whose_entry_point_is_a_plugin_object(tmp_path: Path) -> None:
    code = CODE.format(version="1.0.0", tool="greet_by_name")
    points = "[console_scripts]\nx = y:z\n[fumehood.plugins]\ngreets = greets_plugin.tools:plugin\n"
    path = wheel(tmp_path / "dist", {"greets_plugin/__init__.py": "", "greets_plugin/tools.py": code}, points)
    done = fumehood("plugin", "add", path, "--yes", "--json", folder=tmp_path)
    assert done.status == 0, done.stderr
    assert [tool["name"] for tool in done.json["plugin"]["tools"]] == ["greet_by_name"]
    manifest = (tmp_path / ".fumehood/installed/greets-1.0.0/plugin.toml").read_text()
    assert 'entrypoint = "greets_plugin.tools:plugin"' in manifest


def test_add_fetches_name_and_version_by_pip_and_says_what_pip_said_where_it_can_not(tmp_path: Path) -> None:
    packaged(tmp_path / "dist")
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "dist"), "PIP_CONFIG_FILE": "/dev/null"}
    absent = fumehood("plugin", "add", "greets==2.0.0", "--yes", "--json", folder=tmp_path, more=pip)
    assert (absent.status, absent.error["code"]) == (1, "DOWNLOAD_FAILED")
    assert "greets==2.0.0" in absent.error["message"]
    assert not (tmp_path / "fumehood.toml").exists()
    done = fumehood("plugin", "add", "greets==1.0.0", "--yes", "--json", folder=tmp_path, more=pip)
    assert done.status == 0, done.stderr
    assert done.json["origin"]["file"] == "greets-1.0.0-py3-none-any.whl"
    assert done.json["origin"]["digest"].startswith("sha256:")


def test_a_wheel_that_is_declined_leaves_nothing_behind(tmp_path: Path) -> None:
    done = fumehood("plugin", "add", packaged(tmp_path / "dist"), folder=tmp_path)
    assert (done.status, "Give --yes" in done.stderr) == (2, True)
    assert list((tmp_path / ".fumehood/installed").iterdir()) == []
    assert not (tmp_path / "fumehood.toml").exists()


def test_a_wheel_of_another_version_is_no_second_plugin_of_the_name(tmp_path: Path) -> None:
    assert fumehood("plugin", "add", packaged(tmp_path / "dist"), "--yes", folder=tmp_path).status == 0
    done = fumehood("plugin", "add", packaged(tmp_path / "dist", version="2.0.0"), "--yes", folder=tmp_path)
    assert (done.status, "fumehood plugin upgrade greets TO" in done.stderr) == (2, True), done.stderr
    assert [each.name for each in (tmp_path / ".fumehood/installed").iterdir()] == ["greets-1.0.0"]


def folder_plugin(folder: Path) -> Path:
    for name, text in plugin_files().items():
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_pack_writes_the_same_bytes_whatever_the_times_and_what_is_ignored_and_add_takes_them(tmp_path: Path) -> None:
    one, two = folder_plugin(tmp_path / "one"), folder_plugin(tmp_path / "two")
    for folder in (one, two):
        (folder / "run.sh").write_text("#!/bin/sh\n")
        (folder / "run.sh").chmod(0o755 if folder is one else 0o700)
        (folder / "data").mkdir()
        (folder / "data/link").symlink_to("../code.py")
        (folder / ".fumehoodignore").write_text("*.tmp\n")
    (two / "left.tmp").write_text("ignored")
    (two / "__pycache__").mkdir()
    (two / "__pycache__/code.pyc").write_text("ignored")
    os.utime(two / "code.py", (0, 0))
    packed = fumehood("plugin", "pack", "one", "--json", folder=tmp_path).json
    again = fumehood("plugin", "pack", "two", "-o", "two.zip", "--json", folder=tmp_path).json
    assert (packed["path"], again["digest"]) == (f"{tmp_path}/greets-1.0.0.zip", packed["digest"])
    assert (tmp_path / "two.zip").read_bytes() == (tmp_path / "greets-1.0.0.zip").read_bytes()
    done = fumehood("plugin", "add", "two.zip", "--yes", "--json", folder=tmp_path)
    assert done.status == 0, done.stderr
    assert done.json["plugin"]["digest"] == packed["digest"] == folder_digest(one)
    assert done.json["origin"] == {"file": "two.zip", "digest": packed["file_digest"]}
    within = fumehood("plugin", "pack", "one", "-o", "one/out.zip", "--json", folder=tmp_path)
    assert (within.status, "lies in the plugin's folder" in within.error["message"]) == (2, True)
    nothing = fumehood("plugin", "pack", tmp_path, "--json", folder=tmp_path)
    assert (nothing.status, nothing.error["code"]) == (2, "CONFIG_INVALID")


CONFIG = """\
# First of all.
[server]
listen = ["unix:s"] # the socket

# About keep.
[[plugin]]
path = "keep"

[[plugin]]
path = '{gone}'  # soon gone
read = [
  "data", # one
  # and no other
]
[plugin.tools.greet_by_name]
secrets = ["KEY"]
# its last words

# About the secret.
[secrets.KEY]
env = "KEY"
"""
LEFT = """\
# First of all.
[server]
listen = ["unix:s"] # the socket

# About keep.
[[plugin]]
path = "keep"

# About the secret.
[secrets.KEY]
env = "KEY"
"""


def test_remove_takes_out_entry_and_pin_and_nothing_else_and_says_what_stays(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    folder_plugin(tmp_path / "gone")
    assert fumehood("plugin", "add", "gone", "--yes", folder=tmp_path).status == 0
    (tmp_path / "fumehood.toml").write_text(CONFIG.format(gone="gone"))
    absent = fumehood("plugin", "remove", "greet", "--json", folder=tmp_path)
    assert (absent.status, absent.error["code"], absent.error["todo"]) == (2, "NOT_FOUND", 'Did you mean "greets"?')
    assert "greets" in lock(tmp_path)
    done = fumehood("plugin", "remove", "greets", "--json", folder=tmp_path)
    assert done.status == 0, done.stderr
    assert (tmp_path / "fumehood.toml").read_text() == LEFT
    assert lock(tmp_path) == {}
    assert (done.json["unpinned"], done.json["folder_removed"]) == (True, None)
    assert f"Its folder {tmp_path}/gone stays." in done.json["stays"]
    assert "[secrets.KEY] stays, and no plugin is granted it now." in done.json["stays"]
    assert (tmp_path / "gone/plugin.toml").exists()


def test_remove_takes_away_what_was_unpacked_of_a_wheel(tmp_path: Path) -> None:
    (tmp_path / "fumehood.toml").write_text("# mine\n")
    assert fumehood("plugin", "add", packaged(tmp_path / "dist"), "--yes", folder=tmp_path).status == 0
    done = fumehood("plugin", "remove", "greets", folder=tmp_path)
    assert done.status == 0, done.stderr
    assert list((tmp_path / ".fumehood/installed").iterdir()) == []
    assert (tmp_path / "fumehood.toml").read_text() == "# mine\n"


def test_remove_refuses_what_is_not_written_by_lines(tmp_path: Path) -> None:
    folder_plugin(tmp_path / "one")
    for text in (
        'plugin = [{path = "one"}, {path = "two"}]\n',
        '[[plugin]]\npath = "one"\n[server]\n[plugin.tools.greet_by_name]\n',
    ):
        (tmp_path / "fumehood.toml").write_text(text)
        done = fumehood("plugin", "remove", "greets", "--json", folder=tmp_path)
        assert (done.status, "by hand" in done.error["todo"]) == (2, True), done.stdout
        assert (tmp_path / "fumehood.toml").read_text() == text


def test_upgrade_shows_definitions_asks_and_files_and_pins_only_when_it_is_told_to(tmp_path: Path) -> None:
    folder = folder_plugin(tmp_path / "greets")
    assert fumehood("plugin", "add", "greets", "--yes", folder=tmp_path).status == 0
    unchanged = (tmp_path / "fumehood.toml").read_text(), (tmp_path / "fumehood.lock").read_text()
    text = (folder / "code.py").read_text().replace('"none"', '"read", requires=["read"]').replace("Hello", "Bye")
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "code.py").write_text(text)
    (newer / "plugin.toml").write_text((folder / "plugin.toml").read_text().replace("1.0.0", "1.1.0"))
    (newer / "more.txt").write_text("new here")
    asked = fumehood("plugin", "upgrade", "greets", "newer", folder=tmp_path)
    assert (asked.status, "Give --yes" in asked.stderr) == (2, True), asked.stderr
    for told in (
        "Pinned is 1.0.0; this is 1.1.0.",
        "Definitions: greet_by_name: level none -> read",
        "Asks for level read, which",
        "Asks for read, which",
        "Files: 1 new, 0 gone, 2 changed",
        '-    return "Hello, " + name',
        '+    return "Bye, " + name',
        "+new here",
    ):
        assert told in asked.stdout, asked.stdout
    assert ((tmp_path / "fumehood.toml").read_text(), (tmp_path / "fumehood.lock").read_text()) == unchanged
    done = fumehood("plugin", "upgrade", "greets", "newer", "--yes", "--json", folder=tmp_path)
    assert done.status == 0, done.stderr
    assert done.json["files"] == {"added": ["more.txt"], "removed": [], "changed": ["code.py", "plugin.toml"]}
    assert (tmp_path / "fumehood.toml").read_text() == unchanged[0].replace('"greets"', '"newer"')
    assert lock(tmp_path)["greets"]["digest"] == folder_digest(newer)
    other = folder_plugin(tmp_path / "other")
    (other / "plugin.toml").write_text((other / "plugin.toml").read_text().replace('"greets"', '"other"'))
    refused = fumehood("plugin", "upgrade", "greets", "other", "--yes", "--json", folder=tmp_path)
    assert (refused.status, "holds the plugin other, not greets" in refused.error["message"]) == (2, True)


def test_upgrade_to_another_wheel_replaces_what_was_unpacked(tmp_path: Path) -> None:
    assert fumehood("plugin", "add", packaged(tmp_path / "dist"), "--yes", folder=tmp_path).status == 0
    newer = packaged(tmp_path / "dist", version="2.0.0", tool="greet_again")
    done = fumehood("plugin", "upgrade", "greets", newer, "--yes", "--json", folder=tmp_path)
    assert done.status == 0, done.stderr
    assert [each["summary"] for each in done.json["changes"]] == [
        "greet_again is new at level none",
        "greet_by_name is gone",
    ]
    assert [each.name for each in (tmp_path / ".fumehood/installed").iterdir()] == ["greets-2.0.0"]
    assert 'path = ".fumehood/installed/greets-2.0.0"' in (tmp_path / "fumehood.toml").read_text()


def test_a_new_pin_is_taken_by_the_sidecar_that_runs_and_the_command_is_said_where_none_does(tmp_path: Path) -> None:
    folder = folder_plugin(tmp_path / "greets")
    with running_sidecar([folder]) as sidecar:
        (folder / "code.py").write_text((folder / "code.py").read_text().replace("Hello", "Bye"))
        options = ("--yes", "--config", sidecar.folder / "fumehood.toml")
        done = fumehood("plugin", "upgrade", "greets", *options, folder=tmp_path)
        assert (done.status, "The sidecar that runs has taken it." in done.stdout) == (0, True), done.stdout
        called = fumehood("call", "greet_by_name", address=sidecar.target)
        assert called.stdout == "Bye, you\n"
        sidecar.signal()
        sidecar.wait()
        (folder / "code.py").write_text((folder / "code.py").read_text().replace("Bye", "Again"))
        alone = fumehood("plugin", "upgrade", "greets", *options, folder=tmp_path)
        assert "A sidecar that runs takes it with `fumehood plugin reload greets`." in alone.stdout
