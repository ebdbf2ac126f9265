from __future__ import annotations

import os
import select
from collections.abc import Iterator

import pytest
from fumehood_sandbox.cgroup import Leaf

from tests.resources.leaves import BOUND_S, LIMITS, of_version


@pytest.fixture
def leaf(request: pytest.FixtureRequest) -> Iterator[Leaf]:
    """A leaf of one version, removed afterwards."""
    made = of_version(request.param).leaf(LIMITS)
    assert made is not None
    yield made
    for pid in made.members():
        pidfd = os.pidfd_open(pid)
        made.kill()
        assert select.select([pidfd], [], [], BOUND_S)[0]
        os.close(pidfd)
    assert made.remove()
