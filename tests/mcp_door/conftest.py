from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sidecar import Sidecar, running_sidecar, write_plugin

from .support import CODE

GRANT = 'max_side_effects = "write"'


@pytest.fixture(scope="module")
def plugin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_plugin(tmp_path_factory.mktemp("plugins") / "speech", "speech", CODE)


@pytest.fixture(scope="module")
def sidecar(plugin_folder: Path) -> Iterator[Sidecar]:
    with running_sidecar([(plugin_folder, GRANT)]) as running:
        yield running
