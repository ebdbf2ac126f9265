"""Fixtures for every area: the real sidecar, started as its operator would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.sidecar import Sidecar, running_sidecar


@pytest.fixture
def start_sidecar() -> Iterator[Callable[..., Sidecar]]:
    """`start_sidecar([folder, (folder, 'max_side_effects = "none"')], server="drain_s = 1")`, as often as wanted."""
    with ExitStack() as stack:

        def start(*arguments: Any, **more: Any) -> Sidecar:
            return stack.enter_context(running_sidecar(*arguments, **more))

        yield start
