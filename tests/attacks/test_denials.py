"""Every attack is denied, and what is allowed beside it works: at each level, inside the real sandbox.

The attacks are in `inside/`, one family a file. All of a level's are tried in one sandbox, each in a process
of its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fumehood_sandbox import Level

from tests.attacks.arena import LEVELS, Report, attacks, report, skip_what_this_machine_lacks
from tests.attacks.inside.kit import DONE

CASES = [
    pytest.param(level, name, id=f"{level}-{name}", marks=pytest.mark.promise(attack.promise))
    for level in LEVELS
    for name, attack in attacks(level).items()
]


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[Level, tuple[Path, Report]]:
    found = {}
    for level in LEVELS:
        folder = tmp_path_factory.mktemp(f"attacks-{level}")
        found[level] = (folder, report(folder, level))
    return found


@pytest.mark.parametrize(("level", "name"), CASES)
def test_attack_is_denied_and_its_control_works(
    reports: dict[Level, tuple[Path, Report]], level: Level, name: str
) -> None:
    attacked, control = reports[level][1][name]
    skip_what_this_machine_lacks(name, attacked)
    assert attacked in attacks(level)[name].denied
    assert control == DONE


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.promise("S101")
def test_nothing_outside_the_grants_has_changed(reports: dict[Level, tuple[Path, Report]], level: Level) -> None:
    folder = reports[level][0]
    for name in ("read/file", "outside/canary", "home/.ssh/id", "home/venv/bin/python"):
        assert (folder / name).read_text() == "untouched"
        assert (folder / name).stat().st_mode & 0o7777 == 0o777
    assert [path.name for path in (folder / "outside").iterdir()] == ["canary"]
    assert sorted(path.name for path in folder.iterdir()) == ["home", "outside", "read", "write"]
    made = {path.name for path in (folder / "write").iterdir()}
    assert (len(made) > 1) is level.allows(Level.WRITE)
