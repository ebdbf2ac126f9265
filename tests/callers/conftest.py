"""One sidecar for each module, with three callers and two addresses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.sidecar import Sidecar, running_sidecar, write_plugin

from .support import CODE, House, Services, plain_channel

CALLERS = """
[[caller]]
name = "reader"
tools = ["s*y"]
list_only = ["wait"]

[[caller]]
name = "writer"
tools = ["*"]
approve = ["say"]

[[caller]]
name = "boss"
tools = ["*"]
operator = true

[[policy.rule]]
name = "asked"
permission = "require_approval"
tools = ["say"]
when = [{ pointer = "/text", equals = "after approval" }]
"""


@pytest.fixture(scope="module")
def plugin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_plugin(tmp_path_factory.mktemp("plugins") / "speech", "speech", CODE)


@pytest.fixture(scope="module")
def sidecar(plugin_folder: Path) -> Iterator[Sidecar]:
    with running_sidecar([plugin_folder], server='listen = ["unix:s", "127.0.0.1:0"]', more=CALLERS) as running:
        yield running


@pytest.fixture
async def house(sidecar: Sidecar) -> AsyncIterator[House]:
    unix, tcp = sidecar.targets
    async with plain_channel(unix) as one, plain_channel(tcp) as other:
        yield House(sidecar, Services(one), Services(other))
