"""Every attack is denied, and what is allowed beside it works: at each level, inside the real sandbox.

The attacks are in `inside/`, one family a file. All of a level's are tried in one sandbox, each in a process
of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from fumehood_sandbox import Level, Program

from tests.attacks.arena import (
    AS_EXECUTABLE,
    AS_MODULE,
    LEVELS,
    Report,
    assert_held,
    attacks,
    by_family,
    promises,
    report,
)
from tests.attacks.inside.kit import RELAY, Attack


@dataclass(frozen=True)
class Variant:
    """What is launched for every attack to be tried in."""

    level: Level
    program: Program = AS_MODULE
    relay: bool = False

    @property
    def attacks(self) -> dict[str, Attack]:
        return attacks(RELAY if self.relay else self.level)


VARIANTS = {
    **{str(level): Variant(level) for level in LEVELS},
    "executable": Variant(Level.WRITE, AS_EXECUTABLE),
    RELAY: Variant(Level.EXTERNAL, relay=True),
}
"""Each level, what replaces the inner stage by execve(2), and what has a relay."""
CASES = [
    pytest.param(variant, wanted, id=f"{variant}-{family}", marks=promises(wanted))
    for variant, given in VARIANTS.items()
    for family, wanted in by_family(given.attacks).items()
]
Tried = Callable[[str], tuple[Path, Report]]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    """By variant: where it was launched, and what became of its attacks."""

    @functools.cache
    def once(variant: str) -> tuple[Path, Report]:
        folder, given = tmp_path_factory.mktemp(f"attacks-{variant}"), VARIANTS[variant]
        return folder, report(folder, given.level, program=given.program, relay=given.relay)

    return once


@pytest.mark.parametrize(("variant", "wanted"), CASES)
def test_attacks_are_denied_and_their_controls_work(tried: Tried, variant: str, wanted: dict[str, Attack]) -> None:
    assert_held(tried(variant)[1], wanted)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.promise("S101")
def test_nothing_outside_the_grants_has_changed(tried: Tried, variant: str) -> None:
    level, folder = VARIANTS[variant].level, tried(variant)[0]
    for name in ("read/file", "outside/canary", "home/.ssh/id", "home/venv/bin/python"):
        assert (folder / name).read_text() == "untouched"
        assert (folder / name).stat().st_mode & 0o7777 == 0o777
    assert [path.name for path in (folder / "outside").iterdir()] == ["canary"]
    assert sorted(path.name for path in folder.iterdir()) == ["home", "outside", "read", "write"]
    made = {path.name for path in (folder / "write").iterdir()}
    assert (len(made) > 1) is level.allows(Level.WRITE)
