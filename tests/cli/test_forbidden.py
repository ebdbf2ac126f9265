"""What the kernel denies this user is told with what to do, and not as a traceback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import COMMAND, TIMEOUT_S, Done, environment, fumehood
from tests.cli.fake import FakeSidecar

SETPRIV = shutil.which("setpriv")
WITHOUT_CAPABILITIES = [str(SETPRIV), "--bounding-set=-all", "--inh-caps=-all"]
"""Root still owns the interpreter's files, and is denied like any user what it doesn't own."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or SETPRIV is None, reason="only root gives up capabilities")


def without_capabilities(*arguments: str | Path, folder: Path, address: str = "") -> Done:
    done = subprocess.run(
        [*WITHOUT_CAPABILITIES, *COMMAND, *map(str, arguments)],
        cwd=folder,
        env=environment(address),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def test_a_socket_that_one_may_not_connect_to_is_told_with_its_owner_and_what_to_do(
    fake: FakeSidecar, tmp_path: Path
) -> None:
    path = Path(fake.target.removeprefix("unix:"))
    assert without_capabilities("tools", folder=tmp_path, address=fake.target).status == 0
    os.chown(path, 54320, 54321)
    path.chmod(0o660)
    done = without_capabilities("tools", folder=tmp_path, address=fake.target)
    assert done.status == 3
    assert "the socket is of user 54320, group 54321, mode 0660" in done.stderr
    assert "member of the socket's group" in done.stderr
    assert "fumehood serve" not in done.stderr


def test_a_folder_that_one_may_not_pass_through_is_told_too(fake: FakeSidecar, tmp_path: Path) -> None:
    folder = Path(fake.target.removeprefix("unix:")).parent
    try:
        os.chown(folder, 54320, 54321)
        done = without_capabilities("tools", folder=tmp_path, address=fake.target)
    finally:
        os.chown(folder, 0, 0)
    assert f"may not pass through {folder}" in done.stderr
    assert "fumehood serve" not in done.stderr


def test_a_forbidden_port_says_which_ports_are_free_to_take(tmp_path: Path) -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    if lowest <= 1:
        pytest.skip("every user of this machine may listen on every port")
    done = without_capabilities("serve", "--listen", f"127.0.0.1:{lowest - 1}", "--allow-anonymous", folder=tmp_path)
    assert done.status == 2
    assert f"may not listen on port {lowest - 1}" in done.stderr
    assert "choose a port from" in done.stderr


def test_a_port_that_is_taken_is_told_as_that(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        done = fumehood("serve", "--listen", taken, "--allow-anonymous", folder=tmp_path)
    assert (done.status, "Address already in use" in done.stderr) == (2, True)


def test_a_state_folder_that_cannot_be_written_to_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o555)
    for state_dir in ("closed", "closed/state"):
        (tmp_path / "fumehood.toml").write_text(f'[server]\nlisten = ["unix:run/s"]\nstate_dir = "{state_dir}"\n')
        done = without_capabilities("serve", folder=tmp_path)
        assert done.status == 2
        assert f"can't keep state in {tmp_path / state_dir}: Permission denied" in done.stderr
        assert "`state_dir`" in done.stderr


def test_a_folder_for_the_socket_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o555)
    done = without_capabilities("serve", "--listen", "unix:closed/run/s", folder=tmp_path)
    assert done.status == 2
    assert "Permission denied" in done.stderr
