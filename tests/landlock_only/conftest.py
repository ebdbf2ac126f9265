from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.landlock_only.harness import folder_for_everybody


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_for_everybody() as path:
        yield path
