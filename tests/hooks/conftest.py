"""One sidecar for the module, with hooks for several tools."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.hooks.support import CODE, Client, client_of
from tests.sidecar import Sidecar, running_sidecar, write_plugin

HOOKS = """
[[hook]]
name = "first"
tools = ["say"]
stages = ["before", "after"]
timeout_s = 60

[[hook]]
name = "second"
tools = ["say"]
stages = ["after", "before"]
when_gone = "allow"
timeout_s = 60

[[hook]]
name = "quick"
tools = ["show"]
timeout_s = 3
stages = ["before", "after"]

[[hook]]
name = "notes"
tools = ["no*"]
side_effects = ["write"]
stages = ["after"]

[[policy.rule]]
name = "never"
permission = "deny"
tools = ["say"]
when = [{ pointer = "/text", equals = "never" }]
"""


@pytest.fixture(scope="package")
def sidecar() -> Iterator[Sidecar]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "notes").mkdir(mode=0o777)
        (folder / "notes").chmod(0o777)
        plugin = write_plugin(folder / "plugin", "house", CODE)
        grants = f'max_side_effects = "write"\nwrite = ["{folder / "notes"}"]\n'
        grants += '[plugin.tools.note]\npermission = "allow"\n'
        with running_sidecar([(plugin, grants)], more=HOOKS, at=folder) as running:
            yield running


@pytest_asyncio.fixture
async def client(sidecar: Sidecar) -> AsyncIterator[Client]:
    async with client_of(sidecar) as client:
        yield client
