"""Mounts give files other paths: no grant reaches by them what it can't reach by name."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import fumehood_server
import pytest
from fumehood_server.config.grants import GrantError, Protected, check_links, resolve_grants
from fumehood_server.config.mounts import MountTable, read_mounts

from tests.cli.command import environment

CONTAINER = r"""
500 400 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w
501 500 0:51 / /proc rw,nosuid - proc proc rw
502 500 8:1 /srv/app /app rw,relatime master:1 - ext4 /dev/sda1 rw
503 502 8:1 /volumes/data /app/data rw,relatime - ext4 /dev/sda1 rw
504 500 8:1 /volumes/data /data rw,relatime - ext4 /dev/sda1 rw
505 500 8:1 /pods/7/etc-hosts /etc/hosts rw,relatime - ext4 /dev/sda1 rw
506 500 8:1 /srv/conf/fumehood.toml /conf/fumehood.toml rw,relatime - ext4 /dev/sda1 rw
507 500 8:1 /srv/conf /settings rw,relatime - ext4 /dev/sda1 rw
508 500 8:1 / /host ro,relatime - ext4 /dev/sda1 rw
509 500 0:50 /opt/code /named\040with\134a\012space rw,relatime - overlay overlay rw
510 500 8:2 / /hidden/deep rw,relatime - ext4 /dev/sdb1 rw
511 500 0:60 / /hidden rw,relatime - tmpfs tmpfs rw
512 500 8:2 /a /stacked rw,relatime - ext4 /dev/sdb1 rw
513 512 8:2 /b /stacked rw,relatime - ext4 /dev/sdb1 rw
514 500 8:2 / /disk rw,relatime - ext4 /dev/sdb1 rw
""".strip().encode()


def overlaps(path: str, other: str, *, within: bool = True, table: bytes = CONTAINER) -> bool:
    return MountTable(table).overlap(Path(path), Path(other), within=within)


@pytest.mark.parametrize(
    ("path", "other"),
    [
        ("/data", "/app/data"),
        ("/data", "/app"),  # a part of it is mounted there
        ("/data/deep", "/app"),
        ("/settings", "/conf/fumehood.toml"),
        ("/host", "/app/plugins"),
        ("/host/srv", "/app/plugins"),
        ("/host/srv/app/plugins", "/app/plugins"),
        ("/named with\\a\nspace", "/opt/code/server"),
        ("/named with\\a\nspace/server", "/opt/code"),
        ("/stacked", "/disk/b"),
        ("/disk", "/stacked"),
        ("/disk", "/stacked/not/there"),
    ],
)
def test_the_same_files_by_another_path_overlap(path: str, other: str) -> None:
    assert overlaps(path, other)
    assert not overlaps(path, "/var/lib/own")


@pytest.mark.parametrize(
    ("path", "other"),
    [
        ("/data", "/app/plugins"),  # two volumes of one disk
        ("/data", "/etc"),  # where a file of that disk is mounted as well
        ("/settings/deep", "/conf/fumehood.toml"),
        ("/host/srv/application", "/app"),
        ("/host/opt/code", "/opt/code"),  # the disk's, and the container's own
        ("/hidden", "/disk"),  # what was mounted within is hidden
        ("/stacked", "/disk/a"),
        ("/proc", "/data"),
    ],
)
def test_others_of_the_same_disk_do_not_overlap(path: str, other: str) -> None:
    assert not overlaps(path, other)
    assert not overlaps(other, path)


def test_where_a_folder_alone_counts_what_lies_deeper_in_it_is_free() -> None:
    assert overlaps("/data/tmp", "/app/data", within=True)
    assert not overlaps("/data/tmp", "/app/data", within=False)
    assert overlaps("/data", "/app/data", within=False)
    assert overlaps("/data", "/app/data/tmp", within=False)


@pytest.mark.parametrize(
    "table",
    [
        b"",
        b"7 3 8:1 /a /x rw - ext4 /dev/sda1 rw\n8 3 8:1 /a /y rw - ext4 /dev/sda1 rw",  # a chroot that is no mount
        b"1 1 0:2 / / rw - rootfs rootfs rw\n7 1 8:1 /a /x rw - ext4 d rw\n8 1 8:1 /a /y rw - ext4 d rw",
    ],
)
def test_without_a_mount_of_the_root_paths_count_and_mounts_that_are_known(table: bytes) -> None:
    assert overlaps("/x", "/y/deep", table=table) is bool(table)
    assert overlaps("/y", "/y/deep", table=table)
    assert not overlaps("/x", "/a", table=table)
    assert overlaps("/a", "/a/deep", table=table)


def test_each_mount_of_this_machine_is_read() -> None:
    assert read_mounts() is read_mounts()
    assert read_mounts().overlap(Path("/proc"), Path("/proc/self"))
    assert not read_mounts().overlap(Path("/proc"), Path("/work"))


LOADING = """
import json, sys
from pathlib import Path
from fumehood_server.config import load_config
from fumehood_server.errors import ConfigError
found = {}
for grant in sys.argv[1:]:
    key, _, name = grant.partition(" ")
    Path("fumehood.toml").write_text(
        f'[server]\\nlisten = ["127.0.0.1:0"]\\nallow_anonymous = true\\n[secrets.KEY]\\nfile = "keys/key"\\n'
        f'[[plugin]]\\npath = "dice"\\nmax_side_effects = "write"\\n{key} = ["{name}"]\\n'
    )
    try:
        load_config(Path("fumehood.toml"))
        found[grant] = ""
    except ConfigError as error:
        found[grant] = error.problem
print(json.dumps(found))
"""
REFUSED = {
    "write own/mounted": "the sidecar's own code",
    "write own": "the sidecar's own code",
    "write own-file": "the sidecar's own code",
    "write state": "state_dir",
    "read state": "state_dir",
    "write around/deep": "state_dir",
    "read around": "state_dir",
    "read mine/key": "the file of the secret KEY",
    "read mine": "the file of the secret KEY",
    "write turned": "a symlink to the folder of a plugin",
}
TAKEN = ("read own/mounted", "write again", "read again", "write data", "write around/other", "read mine/note")


def problems_under(
    mounts: Mapping[str, str | Path], script: str, arguments: Sequence[str], folder: Path
) -> dict[str, str]:
    """What the script prints that is run in the folder, where what is named is mounted at these places."""
    lines = [f"mount --bind {shlex.quote(str(source))} {place}" for place, source in mounts.items()]
    command = ["unshare", "--mount", "sh", "-ec", "\n".join([*lines, 'exec "$@"']), "sh"]
    command += [sys.executable, "-P", "-c", script, *arguments]
    env = environment(more={"PYTHONPATH": os.pathsep.join(sys.path)})
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=folder, env=env)
    if "mount" in done.stderr and "denied" in done.stderr:
        pytest.skip("mounts are not permitted here")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_no_grant_reaches_by_a_mount_what_the_sidecar_runs_or_keeps(tmp_path: Path) -> None:
    for name in ("own/mounted", "own-file", "state", ".fumehood", "around/deep", "around/other", "mine", "keys"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("data", "again", "real", "links", "turned"):
        (tmp_path / name).mkdir()
    for name in ("keys/key", "keys/note", "mine/key", "mine/note", "own-file/module.py"):
        (tmp_path / name).touch()
    (tmp_path / "links/dice").symlink_to("../real")
    (tmp_path / "dice").symlink_to("links/dice")
    package = Path(fumehood_server.__file__).parent
    binds: dict[str, str | Path] = {
        "own/mounted": package / "config",
        "own-file/module.py": package / "errors.py",
        "state": ".fumehood",
        "around/deep": ".",
        "mine/key": "keys/key",
        "again": "data",
        "turned": "links",
    }
    grants = [*REFUSED, *TAKEN]

    found = problems_under(binds, LOADING, grants, tmp_path)
    for grant, what in REFUSED.items():
        assert what in found[grant], grant
        assert "by another mount" in found[grant], grant
    assert {grant: found[grant] for grant in TAKEN} == dict.fromkeys(TAKEN, "")
    assert problems_under({}, LOADING, grants, tmp_path) == dict.fromkeys(grants, ""), (
        "nothing is refused that is mounted once"
    )


PLUGINS = """
import json
from pathlib import Path
from fumehood_server.cli.commands.serve import _with_plugins
from fumehood_server.cli.failure import CommandError
from fumehood_server.config import load_config
from fumehood_server.errors import ConfigError
def problem(text, *more):
    head = '[server]\\nlisten = ["127.0.0.1:0"]\\nallow_anonymous = true\\n'
    Path("fumehood.toml").write_text(head + text)
    try:
        _with_plugins(load_config(Path("fumehood.toml")), tuple(map(Path, more)))
    except ConfigError as error:
        return error.problem
    except CommandError as error:
        return str(error)
    return ""
key, plugin = '[secrets.KEY]\\nfile = "keys/key"\\n', '[[plugin]]\\npath = "dice"\\n'
print(json.dumps({
    "secret": problem(key + plugin),
    "state": problem('state_dir = "kept"\\n' + plugin),
    "option": problem(key, "dice"),
}))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_no_plugins_folder_holds_by_a_mount_what_sandboxes_must_not_see(tmp_path: Path) -> None:
    for name in ("keys", "kept", "dice/deep"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "keys/key").touch()
    found = problems_under({"dice/deep": "keys", "kept": "dice"}, PLUGINS, (), tmp_path)
    assert "which sandboxes are shown" in found["secret"]
    assert "lies in the plugin's folder" in found["state"]
    assert "which sandboxes are shown" in found["option"]
    assert problems_under({}, PLUGINS, (), tmp_path) == dict.fromkeys(found, ""), "nothing is, without mounts"


def test_a_symlink_that_a_plugin_reaches_by_a_mount_is_not_followed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("links", "granted", "real"):
        (tmp_path / name).mkdir()
    (tmp_path / "links/to").symlink_to("../real")
    table = f"1 0 8:1 / / rw - ext4 d rw\n2 1 8:1 {tmp_path}/links {tmp_path}/granted rw - ext4 d rw\n"
    monkeypatch.setattr("fumehood_server.config.grants.read_mounts", lambda: MountTable(table.encode()))
    with pytest.raises(GrantError, match="leads through the symlink"):
        check_links("read", ["links/to"], folder=tmp_path, writable=[str(tmp_path / "granted")])
    check_links("read", ["links/to"], folder=tmp_path, writable=[str(tmp_path / "real")])
    kept = (Protected(tmp_path / "links", "kept"),)
    with pytest.raises(GrantError, match="by another mount"):
        resolve_grants([], ["granted"], folder=tmp_path, protected=kept)
    resolve_grants([], ["real"], folder=tmp_path, protected=kept)
