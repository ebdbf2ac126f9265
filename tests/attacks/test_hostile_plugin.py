"""Every family of attacks once more, as the tool of a plugin that the real sidecar calls."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_sandbox import Level

from tests.attacks.arena import (
    FAMILIES,
    INSIDE,
    LURE,
    LURE_KEY,
    Report,
    assert_held,
    attacks,
    by_family,
    lay_out,
    lures,
    promises,
)
from tests.attacks.inside.kit import Attack
from tests.rpc.support import call
from tests.sidecar import Sidecar, running_sidecar, write_plugin

_HEAD = """
from typing import Any

from fumehood_sdk import Plugin
from tests.attacks.inside.runner import run_all

plugin = Plugin("attacker", version="1.0.0")
"""
_TOOL = '''

@plugin.tool(side_effects="{level}", requires={requires}, isolation="{isolation}", timeout_s=100)
def {level}_in_a_{isolation}(arena: dict[str, Any]) -> dict[str, list[str]]:
    """Try everything."""
    return run_all(arena)
'''
_NOT_A_WORKERS = {
    # A worker has HOME, LANG and PATH; test_sidecar.py looks at its environment.
    "inheritance/environment",
    "inheritance/environment_as_the_kernel_has_it",
    # The SDK has the pipes to the sidecar elsewhere, and an event loop's descriptors; nothing of it is inherited.
    "inheritance/descriptors",
    "inheritance/descriptors_that_lead_outside",
}
_ITS_OWN = {
    f"processes/{name}" for name in ("signal_first_process", "kill_first_process", "queue_signal_first_process")
}
_ITS_OWN |= {"processes/signal_everybody"}
"""Where a call has a process of its own, that is the first one that it knows of; to itself it may do what it likes."""
_ITS_OWN |= {"mounts/watch_what_was_not_granted"}  # there it can watch nothing at all: tests/isolation/test_channels.py
_BOUND_S = 100.0
"""For all attacks of a tool: five hundred processes, which have the machine's last share of the processor."""
TOOLS = [(Level.NONE, "process"), (Level.READ, "call"), (Level.WRITE, "call"), (Level.EXTERNAL, "process")]
"""Each level, and both isolations. In a warm process `external` is `write` with a broker beside it."""


def _wanted(level: Level, how: str) -> dict[str, Attack]:
    left_out = _NOT_A_WORKERS | (_ITS_OWN if how == "call" else set())
    return {name: attack for name, attack in attacks(level).items() if name not in left_out}


CASES = [
    pytest.param(level, how, wanted, id=f"{level}-{how}-{family}", marks=promises(wanted))
    for level, how in TOOLS
    for family, wanted in by_family(_wanted(level, how)).items()
]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    lay_out(folder)
    tools = "".join(
        _TOOL.format(level=level, isolation=isolation, requires=_requires(level)) for level, isolation in TOOLS
    )
    write_plugin(folder / "plugin", "attacker", _HEAD + tools)
    shutil.copytree(INSIDE, folder / "plugin" / "tests" / "attacks" / "inside")
    return folder


@pytest.fixture(scope="module")
def sidecar(house: Path) -> Iterator[Sidecar]:
    grants = f'max_side_effects = "external"\nread = ["{house}/read"]\nwrite = ["{house}/write"]\n'
    for level, isolation in TOOLS:
        grants += f'[plugin.tools.{level}_in_a_{isolation}]\npermission = "allow"\n'
    with running_sidecar([(house / "plugin", grants)]) as started:
        yield started


Tried = Callable[[Level, str], Report]


@pytest.fixture(scope="module")
def tried(sidecar: Sidecar, house: Path) -> Iterator[Tried]:
    """By level and isolation: what became of the attacks of that tool, which is called once."""
    with lures(house) as port, grpc.insecure_channel(sidecar.target) as channel:

        @functools.cache
        def once(level: Level, isolation: str) -> Report:
            arena = {
                "families": FAMILIES,
                "level": str(level),
                "read": str(house / "read") if level.allows(Level.READ) else "",
                "write": str(house / "write") if level.allows(Level.WRITE) else "",
                "outside": str(house / "outside"),
                "home": str(house / "home"),
                "outside_pids": [os.getpid(), sidecar.process.pid],
                "host_uid": os.getuid(),
                "lure": LURE,
                "lure_key": LURE_KEY,
                "lure_port": port,
            }
            result = (
                ToolServiceStub(channel)
                .CallTool(call(f"{level}_in_a_{isolation}", {"arena": arena}), timeout=_BOUND_S)
                .result
            )
            assert not result.is_error, result
            _empty(house / "write")  # the next level makes the same names
            found: Report = json.loads(result.details_json)
            return found

        yield once


def _requires(level: Level) -> tuple[str, ...]:
    return {Level.NONE: (), Level.READ: ("read",)}.get(level, ("write",))


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != "file":
            path.unlink()


@pytest.mark.parametrize(("level", "isolation", "wanted"), CASES)
def test_attacks_by_a_plugin_are_denied_and_their_controls_work(
    tried: Tried, level: Level, isolation: str, wanted: dict[str, Attack]
) -> None:
    assert_held(tried(level, isolation), wanted)
