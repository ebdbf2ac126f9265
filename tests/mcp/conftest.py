"""A sidecar that hosts the small server in both revisions of the protocol, for the tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mcp.support import Caller, mcp_plugin
from tests.sidecar import Sidecar, running_sidecar


@dataclass(frozen=True)
class Hosted:
    """A sidecar, and the folder that its servers may write to."""

    sidecar: Sidecar
    writable: Path
    readable: Path


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    """The small server as `old`, by `initialize`, and as `new`, by `server/discover`, its tools prefixed `new_`."""
    folder = tmp_path_factory.mktemp("mcp")
    writable, readable = folder / "writable", folder / "readable"
    for each in (writable, readable):
        each.mkdir()
        each.chmod(0o777)  # a root-started sidecar gives plugins ids of their own
    (readable / "note").write_text("a note")
    secret = folder / "secret"
    secret.write_text("s3cret-value")
    secret.chmod(0o600)
    grants = "\n".join(
        (
            'max_side_effects = "external"',
            f'read = ["{readable}"]',
            f'write = ["{writable}"]',
            'secrets = ["token"]',
            "[plugin.tools.write_file]\npermission = 'allow'",
            "[plugin.tools.environment]\npermission = 'allow'",
            "[plugin.tools.count_up]\npermission = 'allow'",
        )
    )
    environment = {"GREETING": '"hello"', "TOKEN": '{ secret = "token" }'}
    old = mcp_plugin(folder / "old", environment=environment)
    new = mcp_plugin(folder / "new", environment={**environment, "STATELESS": '"1"'})
    more = f'[secrets.token]\nfile = "{secret}"\n'
    with running_sidecar([(old, grants), (new, f'prefix = "new_"\n{grants}')], more=more) as sidecar:
        yield Hosted(sidecar, writable, readable)


@pytest.fixture
async def caller(hosted: Hosted) -> AsyncIterator[Caller]:
    """Calls tools of the module's sidecar."""
    async with hosted.sidecar.channel() as channel:
        yield Caller(channel)
