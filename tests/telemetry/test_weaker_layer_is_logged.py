"""A sidecar that can bound workers only more weakly says so at its start, with what the operator can do."""

from __future__ import annotations

import os
import sys

import pytest

from tests.sidecar import running_sidecar

_HIDDEN = 'mount -t tmpfs none /sys/fs/cgroup && exec "$0" "$@"'
_WITHOUT_CGROUPS = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _HIDDEN)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root: cgroups are hidden in a mount namespace")
@pytest.mark.parametrize("prefix", [_WITHOUT_CGROUPS, ()])
def test_missing_cgroups_are_logged_once_with_the_remedy(prefix: tuple[str, ...]) -> None:
    with running_sidecar(interpreter=(*prefix, sys.executable)) as sidecar:
        sidecar.logged(event="serving")  # which comes after
        found = [line for line in sidecar.log() if line["event"] == "sandbox_weaker"]
    assert [line["layer"] for line in found] == (["cgroup"] if prefix else [])
    for line in found:
        assert "/sys/fs/cgroup" in line["message"]
        assert "Delegate=yes" in line["remedy"]


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root: cgroups are hidden in a mount namespace")
def test_an_operator_who_wants_no_cgroups_is_not_told_that_there_are_none() -> None:
    off = '[sandbox]\ncgroups = "off"\n'
    with running_sidecar(more=off, interpreter=(*_WITHOUT_CGROUPS, sys.executable)) as sidecar:
        sidecar.logged(event="serving")
        assert [line for line in sidecar.log() if line["event"] == "sandbox_weaker"] == []
