"""What doctor says of hooks and middleware, in the file and in the sidecar that runs."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path

import pytest
from fumehood_server.cli.client import SidecarClient
from fumehood_server.cli.doctor_hooks import hook_findings, served_findings
from fumehood_server.config import load_config

from tests.hooks.support import Client
from tests.hooks.test_middleware import install
from tests.plugins.support import configure
from tests.sidecar import Sidecar

CONFIG = """
[[caller]]
name = "ada"

[[hook]]
name = "spending"
stages = ["before"]
callers = ["ada", ""]
plugins = ["house"]

[[hook]]
name = "open"
stages = ["before", "after"]
when_gone = "allow"

[[hook]]
name = "nobody"
stages = ["after"]
callers = ["eve"]

[[middleware]]
name = "outer"

[[middleware]]
name = "absent"
plugins = ["bonk"]
"""


def test_of_the_file_it_tells_what_can_not_be_loaded_and_what_concerns_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(install(site)))
    importlib.invalidate_caches()
    config = load_config(configure(tmp_path, CONFIG))
    assert [(each.feature, each.status) for each in hook_findings(config, ["house"])] == [
        ("middleware outer", "ok"),
        ("middleware absent", "missing"),
        ("middleware absent", "note"),
        ("hook spending", "ok"),
        ("hook open", "note"),
        ("hook nobody", "ok"),
        ("hook nobody", "note"),
    ]
    assert [*hook_findings(load_config(configure(tmp_path, "")), ["house"])] == []


async def test_of_the_sidecar_it_tells_which_hooks_nobody_serves(client: Client, sidecar: Sidecar) -> None:
    def found() -> dict[str, str]:
        with SidecarClient(sidecar.target) as cli:
            return {each.feature: each.detail for each in served_findings(cli)}

    async with client.serving("first"):
        some = await asyncio.to_thread(found)
    assert sorted(some) == ["hook notes", "hook quick", "hook second"]
    assert ("goes on" in some["hook second"], "is refused" in some["hook quick"]) == (True, True)
