"""Every attack is denied, and what is allowed beside it works: at each level, inside the real sandbox.

The attacks are in `inside/`, one family a file. All of a level's are tried in one sandbox, each in a process
of its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fumehood_sandbox import Level, Program

from tests.attacks.arena import AS_EXECUTABLE, AS_MODULE, LEVELS, Report, attacks, report, skip_what_this_machine_lacks
from tests.attacks.inside.kit import DONE

VARIANTS: dict[str, tuple[Level, Program]] = {
    **{str(level): (level, AS_MODULE) for level in LEVELS},
    "executable": (Level.WRITE, AS_EXECUTABLE),
}
"""Each level, and what replaces the inner stage by execve(2)."""
CASES = [
    pytest.param(variant, name, id=f"{variant}-{name}", marks=pytest.mark.promise(attack.promise))
    for variant, (level, _) in VARIANTS.items()
    for name, attack in attacks(level).items()
]


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Report]]:
    found = {}
    for variant, (level, program) in VARIANTS.items():
        folder = tmp_path_factory.mktemp(f"attacks-{variant}")
        found[variant] = (folder, report(folder, level, program=program))
    return found


@pytest.mark.parametrize(("variant", "name"), CASES)
def test_attack_is_denied_and_its_control_works(
    reports: dict[str, tuple[Path, Report]], variant: str, name: str
) -> None:
    attacked, control = reports[variant][1][name]
    skip_what_this_machine_lacks(name, attacked)
    assert attacked in attacks(VARIANTS[variant][0])[name].denied
    assert control == DONE


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.promise("S101")
def test_nothing_outside_the_grants_has_changed(reports: dict[str, tuple[Path, Report]], variant: str) -> None:
    level, folder = VARIANTS[variant][0], reports[variant][0]
    for name in ("read/file", "outside/canary", "home/.ssh/id", "home/venv/bin/python"):
        assert (folder / name).read_text() == "untouched"
        assert (folder / name).stat().st_mode & 0o7777 == 0o777
    assert [path.name for path in (folder / "outside").iterdir()] == ["canary"]
    assert sorted(path.name for path in folder.iterdir()) == ["home", "outside", "read", "write"]
    made = {path.name for path in (folder / "write").iterdir()}
    assert (len(made) > 1) is level.allows(Level.WRITE)
