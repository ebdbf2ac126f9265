"""Every attack of `tests/attacks`, tried where there are no namespaces. Run by `test_cases.py`, by two users.

Those attacks ask for what a namespace answers, such as a file that isn't there. Here a denial will do, so this looks
for what was not denied.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fumehood_sandbox import Backend, Level

from tests.attacks.arena import Report, attacks, report
from tests.attacks.inside.kit import ABSENT, DONE
from tests.landlock_only.harness import folder_for_everybody

pytestmark = pytest.mark.promise("S904")

_DENIAL = re.compile(r"(?s)(\S+: )?E[A-Z0-9]+|\{('E[A-Z]+'(, )?)+\}|nothing was said|.*PermissionError.*")
_LOOKING = {
    "file_system/read_the_machines_identity",
    "file_system/reach_sockets_and_buses_by_path",
    "sockets/name_of_a_socket_outside",
    "proc/processes_outside_by_number",
}
"""What stat(2) tells of files outside, and that processes outside exist: docs/sandbox.md says so."""
_GIVEN = {"inheritance/environment"}
"""TMPDIR, which the sandbox adds."""
_NOBODY_THERE = re.compile(r"processes/\w+_outside")
"""These look for numbers that aren't theirs as well, which there are none without a pid namespace: `cases_processes`
tries the same on the launcher, its group supervisor and a sibling."""
_LEAST_CONTROLS = 150
_LEVELS = [Level.NONE, Level.READ, Level.WRITE] if os.geteuid() == 0 else [Level.NONE, Level.WRITE]
_CANARIES = ("read/file", "outside/canary", "home/.ssh/id", "home/venv/bin/python")


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_for_everybody() as path:
        path.chmod(0o777)
        yield path


def _not_denied(found: Report, level: Level) -> dict[str, str]:
    known = attacks(level)
    return {
        name: attacked
        for name, (attacked, _) in found.items()
        if attacked != ABSENT
        and attacked not in known[name].denied
        and not _DENIAL.fullmatch(attacked)
        and not (_NOBODY_THERE.fullmatch(name) and "nobody to attack" in attacked)
    }


@pytest.mark.parametrize("level", _LEVELS)
def test_no_attack_gets_further_than_looking(folder: Path, level: Level) -> None:
    arena = folder / "arena"
    arena.mkdir()
    arena.chmod(0o777)
    found = report(arena, level, Backend.LANDLOCK)
    assert set(_not_denied(found, level)) <= _LOOKING | _GIVEN, _not_denied(found, level)
    assert sum(control == DONE for _, control in found.values()) >= _LEAST_CONTROLS
    for name in _CANARIES:
        assert (arena / name).read_text() == "untouched"
        assert (arena / name).stat().st_mode & 0o7777 == 0o777
    assert {path.name for path in (arena / "outside").iterdir()} == {"canary"}
    assert sorted(path.name for path in arena.iterdir()) == ["home", "outside", "read", "write"]
