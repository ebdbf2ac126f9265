"""The folders of owners of leaves: one for each owner, gone with the process or swept after it was killed."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from fumehood_sandbox.cgroup import Control, cgroups
from fumehood_sandbox.cgroup.discovery import find
from fumehood_sandbox.cgroup.hierarchy import hierarchies

from tests.resources.leaves import BOUND_S, line_of, within

pytestmark = pytest.mark.promise("S604")


@pytest.mark.skipif(Control.QUOTA not in cgroups().controls, reason="no cgroup with a quota of processor time")
def test_leaves_of_an_owner_lie_in_a_folder_that_a_dead_process_leaves_to_be_swept() -> None:
    script = """
import subprocess, sys
from fumehood_sandbox import Limits
from fumehood_sandbox.cgroup import cgroups
leaves = [cgroups().leaf(Limits(), owner=owner) for owner in ("one", "one", "other")]
if sys.argv[1] == "killed":
    left = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    leaves[0].add_process(left.pid)
    print(left.pid, end=" ")
print(*(folder for leaf in leaves for folder, (_, has) in leaf._folders.items() if "quota" in has), flush=True)
sys.stdin.read()
for leaf in leaves:
    leaf.discard()
"""

    def made(how: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", script, how]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with made("ended") as process:
        one, again, other = (Path(folder).parent for folder in line_of(process).split())
        assert one == again != other
        assert one.exists(), "control: as long as the process"
    assert not one.exists()
    assert not other.exists()
    with made("killed") as process:
        pid, *folders = line_of(process).split()
        pidfd = os.pidfd_open(int(pid))
        owners = {Path(folder).parent for folder in folders}
        # Looked at while the process lives: from then on whoever else starts on this machine sweeps them as well.
        assert all(each.exists() for each in owners)
        process.kill()
    find(hierarchies())
    assert select.select([pidfd], [], [], BOUND_S)[0], "it still runs"
    os.close(pidfd)
    assert within(BOUND_S, lambda: not any(each.exists() for each in owners))
