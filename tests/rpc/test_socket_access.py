"""Mode and group of the unix sockets, and who may connect for them."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fumehood_server.config.listen import SocketAccess
from fumehood_server.rpc.sockets import ListenFailedError, claimed, open_to, private_umask

from tests.sidecar import running_sidecar

OTHER_GROUP = 54321
OTHER_USER = 54320
GROUP = SocketAccess(mode=0o660, group_id=OTHER_GROUP, group=str(OTHER_GROUP))

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a socket to a group that it isn't in")


@pytest.fixture
def place() -> Iterator[Path]:
    # Not pytest's tmp_path: its folder is root's alone, and the path of a unix socket may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def connects(path: Path, *, group: int) -> bool:
    """Whether a process of another user and this group can."""
    code = f"""
import os, socket, sys
os.setgroups([]); os.setgid({group}); os.setuid({OTHER_USER})
socket.socket(socket.AF_UNIX).connect(sys.argv[1])
"""
    done = subprocess.run([sys.executable, "-S", "-c", code, str(path)], capture_output=True, check=False, text=True)
    assert done.returncode == 0 or "Permission denied" in done.stderr, done.stderr
    return done.returncode == 0


def test_the_group_may_connect_and_nobody_else() -> None:
    server = f'listen = ["unix:folder/s"]\nsocket_group = "{OTHER_GROUP}"'
    with running_sidecar(server=server, everybody=True) as sidecar:
        path = Path(sidecar.target.removeprefix("unix:"))
        found, folder = path.stat(), path.parent.stat()
        assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o660, OTHER_GROUP)
        assert (stat.S_IMODE(folder.st_mode), folder.st_gid) == (0o710, OTHER_GROUP)
        assert connects(path, group=OTHER_GROUP)
        assert not connects(path, group=OTHER_USER)


def test_the_group_may_connect_in_the_default_place_of_which_nothing_else_is_open_to_it() -> None:
    default = 'listen = ["unix:.fumehood/fumehood.sock"]'
    with running_sidecar(server=f'{default}\nsocket_group = "{OTHER_GROUP}"', everybody=True) as sidecar:
        path = sidecar.folder / ".fumehood/fumehood.sock"
        public = path.with_name("journal.pub")
        assert connects(path, group=OTHER_GROUP)
        assert not connects(path, group=OTHER_USER)
        open_to_it = [
            each
            for each in path.parent.iterdir()
            if each not in {path, public} and stat.S_IMODE(each.stat().st_mode) & (stat.S_IRGRP | stat.S_IROTH)
        ]
        assert open_to_it == []
    with running_sidecar(server=default, everybody=True) as sidecar:
        folder = (sidecar.folder / ".fumehood").stat()
        assert stat.S_IMODE(folder.st_mode) == 0o700


def test_everybody_may_connect_where_the_configuration_says_so_and_nobody_by_default() -> None:
    server = 'listen = ["unix:folder/s"]\nsocket_mode = "0666"'
    with running_sidecar(server=server, everybody=True) as sidecar:
        assert connects(Path(sidecar.target.removeprefix("unix:")), group=OTHER_USER)
    with running_sidecar(everybody=True) as sidecar:
        assert not connects(Path(sidecar.target.removeprefix("unix:")), group=OTHER_USER)


def test_nobody_of_another_group_may_connect_at_any_moment(place: Path) -> None:
    """Each step of making the socket, with who could connect after it."""
    path = place / "s"
    with claimed(path, GROUP), socket.socket(socket.AF_UNIX) as listener:
        with private_umask():
            listener.bind(str(path))
        listener.listen()
        assert not connects(path, group=OTHER_GROUP)
        steps = []
        chmod = Path.chmod

        def watched(self: Path, mode: int, *, follow_symlinks: bool = True) -> None:
            steps.append((self.stat().st_gid, stat.S_IMODE(self.stat().st_mode)))
            chmod(self, mode, follow_symlinks=follow_symlinks)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "chmod", watched)
            open_to(path, GROUP)
        assert steps == [(OTHER_GROUP, 0o600)]
        assert connects(path, group=OTHER_GROUP)


def test_a_folder_through_which_the_group_cannot_pass_is_refused_with_what_to_do(place: Path) -> None:
    place.chmod(0o700)
    with pytest.raises(ListenFailedError, match="may not pass through") as caught, claimed(place / "s", GROUP):
        pass
    assert caught.value.remedy.endswith(f"chgrp {OTHER_GROUP} {place} && chmod g+x {place}")
    place.chmod(0o710)
    with claimed(place / "s", GROUP):
        pass
