"""Every attack is denied, and what is allowed beside it works: at each level, inside the real sandbox.

The attacks are in `inside/`, one family a file. All of a level's are tried in one sandbox, each in a process
of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from fumehood_sandbox import Level, Program

from tests.attacks.arena import AS_EXECUTABLE, AS_MODULE, LEVELS, Report, attacks, report, skip_what_this_machine_lacks
from tests.attacks.inside.kit import DONE, RELAY, Attack


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
    pytest.param(variant, name, id=f"{variant}-{name}", marks=pytest.mark.promise(attack.promise))
    for variant, given in VARIANTS.items()
    for name, attack in given.attacks.items()
]


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Report]]:
    found = {}
    for variant, given in VARIANTS.items():
        folder = tmp_path_factory.mktemp(f"attacks-{variant}")
        found[variant] = (folder, report(folder, given.level, program=given.program, relay=given.relay))
    return found


@pytest.mark.parametrize(("variant", "name"), CASES)
def test_attack_is_denied_and_its_control_works(
    reports: dict[str, tuple[Path, Report]], variant: str, name: str
) -> None:
    attacked, control = reports[variant][1][name]
    skip_what_this_machine_lacks(name, attacked)
    assert attacked in VARIANTS[variant].attacks[name].denied
    assert control == DONE


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.promise("S101")
def test_nothing_outside_the_grants_has_changed(reports: dict[str, tuple[Path, Report]], variant: str) -> None:
    level, folder = VARIANTS[variant].level, reports[variant][0]
    for name in ("read/file", "outside/canary", "home/.ssh/id", "home/venv/bin/python"):
        assert (folder / name).read_text() == "untouched"
        assert (folder / name).stat().st_mode & 0o7777 == 0o777
    assert [path.name for path in (folder / "outside").iterdir()] == ["canary"]
    assert sorted(path.name for path in folder.iterdir()) == ["home", "outside", "read", "write"]
    made = {path.name for path in (folder / "write").iterdir()}
    assert (len(made) > 1) is level.allows(Level.WRITE)
