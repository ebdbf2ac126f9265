from __future__ import annotations

import os
import select
from collections.abc import Iterator

import pytest
from fumehood_sandbox.cgroup import Cgroups, Leaf

from tests.resources.leaves import BOUND_S, LIMITS, bounding, mounted


@pytest.fixture
def leaf(request: pytest.FixtureRequest) -> Iterator[Leaf]:
    """A leaf of one version, removed afterwards."""
    yield from _leaf_of(mounted(request.param))


@pytest.fixture
def bounding_leaf(request: pytest.FixtureRequest) -> Iterator[Leaf]:
    """The same where that version has the controllers for all limits."""
    yield from _leaf_of(bounding(request.param))


def _leaf_of(found: Cgroups) -> Iterator[Leaf]:
    made = found.leaf(LIMITS)
    assert made is not None
    yield made
    for pid in made.members():
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue  # it was being killed
        made.kill()
        assert select.select([pidfd], [], [], BOUND_S)[0]
        os.close(pidfd)
    assert made.remove()
