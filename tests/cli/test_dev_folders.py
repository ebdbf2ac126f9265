"""What a killed `plugin dev` leaves in /tmp is removed by the next one, and nothing else there is."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from fumehood_server.cli.dev_folder import LOCK_NAME, private_folder, remove_killed

from tests.cli.command import fumehood
from tests.cli.serving import CODE, running
from tests.sidecar import write_plugin

LEFT = "fumehood-dev-abcd_123"
NOBODY = 65534


def left(root: Path, name: str = LEFT) -> Path:
    """A folder as a killed `plugin dev` leaves it."""
    folder = root / name
    (folder / "state" / "deeper").mkdir(parents=True)
    folder.chmod(0o700)
    (folder / "state" / "deeper" / "file").write_text("x")
    (folder / "fumehood.toml").write_text("")
    (folder / LOCK_NAME).write_text("")
    return folder


def test_the_next_dev_removes_what_a_killed_one_left_and_not_what_another_uses(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path / "small", "small", CODE)
    with running("plugin", "dev", plugin, folder=tmp_path) as lives:
        address = lives.wait_for("export FUMEHOOD_ADDRESS=").split("=")[1]
        with running("plugin", "dev", plugin, folder=tmp_path) as killed:
            folder = Path(killed.wait_for("export FUMEHOOD_ADDRESS=").split("=")[1].removeprefix("unix:")).parent
            killed.end(signal.SIGKILL)
        assert (folder / LOCK_NAME).exists()
        with running("plugin", "dev", plugin, folder=tmp_path) as following:
            following.wait_for("^watching ")
            assert not folder.exists()
            assert fumehood("call", "echo", "text=hi", address=address).stdout == "hi\n"
    assert not Path(address.removeprefix("unix:")).parent.exists()


def test_what_a_folder_links_to_stays_when_it_is_removed(tmp_path: Path) -> None:
    outside = left(tmp_path, "outside")
    folder = left(tmp_path)
    for place in (folder / "linked", folder / "state" / "environments"):
        place.symlink_to(outside)
    before = sorted(outside.rglob("*"))
    remove_killed(tmp_path)
    assert not folder.exists()
    assert sorted(outside.rglob("*")) == before


def test_a_folder_in_use_is_removed_by_nobody_until_its_block_ends(tmp_path: Path) -> None:
    with private_folder(tmp_path) as folder, private_folder(tmp_path) as another:
        assert folder.stat().st_mode & 0o777 == 0o700
        remove_killed(tmp_path)
        assert (folder / LOCK_NAME).exists()
        assert (another / LOCK_NAME).exists()
    assert list(tmp_path.iterdir()) == []


def as_link(root: Path) -> None:
    (root / LEFT).symlink_to(left(root, "elsewhere"))


def as_link_to_its_lock(root: Path) -> None:
    folder = left(root)
    (folder / LOCK_NAME).rename(root / "lock")
    (folder / LOCK_NAME).symlink_to(root / "lock")


def as_fifo(root: Path) -> None:
    os.mkfifo(root / LEFT)


def as_fifo_in_place_of_its_lock(root: Path) -> None:
    folder = left(root)
    (folder / LOCK_NAME).unlink()
    os.mkfifo(folder / LOCK_NAME)


def without_a_lock(root: Path) -> None:
    """Of an earlier release, of which nobody knows whether it lives."""
    (left(root) / LOCK_NAME).unlink()


def for_others_to_write(root: Path) -> None:
    left(root).chmod(0o777)


def under_another_name(root: Path) -> None:
    left(root, f"{LEFT}-mine")


@pytest.mark.parametrize(
    "plant",
    [
        as_link,
        as_link_to_its_lock,
        as_fifo,
        as_fifo_in_place_of_its_lock,
        without_a_lock,
        for_others_to_write,
        under_another_name,
    ],
)
def test_what_no_dev_made_stays(plant: Callable[[Path], None], tmp_path: Path) -> None:
    plant(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    control = left(tmp_path, "fumehood-dev-control_")
    remove_killed(tmp_path)
    assert not control.exists()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_whose_lock_is_held_stays(tmp_path: Path) -> None:
    folder = left(tmp_path)
    with (folder / LOCK_NAME).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove_killed(tmp_path)
        assert (folder / "fumehood.toml").exists()
    remove_killed(tmp_path)
    assert not folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_users_folder_stays(tmp_path: Path) -> None:
    theirs, control = left(tmp_path), left(tmp_path, "fumehood-dev-control_")
    os.chown(theirs, NOBODY, NOBODY)
    remove_killed(tmp_path)
    assert (theirs / "fumehood.toml").exists()
    assert not control.exists()


def test_a_root_that_is_not_there_is_no_failure(tmp_path: Path) -> None:
    remove_killed(tmp_path / "nowhere")
