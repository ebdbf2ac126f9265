"""What came of a kernel is held against the matrix, and told in a table that keeps short runs and whole ones apart."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tools.kernels import results, table
from tools.kernels.matrix import BY_NAME, ENTRIES, FULL, NONE, SHORT
from tools.kernels.results import EntryResult

KERNEL = {"release": "6.12.95-cloud", "machine": "x86_64", "landlock_abi": 6, "lsm": "landlock"}
Finding = dict[str, str]


def finding(area: str, layer: str, status: str, detail: str = "", remedy: str = "") -> Finding:
    return {
        "area": area, "layer": layer, "feature": layer, "status": status, "detail": detail, "remedy": remedy,
    }  # fmt: skip


def result(entry: str, *reports: list[Finding], tests: str = SHORT) -> EntryResult:
    """An entry whose doctor reported this in each run, whose tests all passed."""
    found = EntryResult(entry, tests)
    found.take({"event": "kernel", **KERNEL})
    for run, findings in zip(BY_NAME[entry].runs, reports, strict=True):
        found.take({"event": "run", "run": run.name})
        found.take({"event": "doctor", "report": {"findings": findings}})
        found.take(
            {"event": "test", "test": "tests/attacks/test_denials.py::test_a", "outcome": "passed", "reason": ""}
        )
        found.take({"event": "end", "status": 0})
    found.take({"event": "over"})
    return found


def weaker(area: str, *layers: str) -> list[Finding]:
    return [finding(area, layer, "weaker") for layer in layers]


def lacked(entry: str) -> str:
    """What doctor must say in an entry's first run."""
    return BY_NAME[entry].runs[0].lacks[0]


IN_FORCE = [finding("sandbox", "seccomp", "in force")]


@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES])
def test_a_layer_that_becomes_weaker_is_not_as_expected_anywhere(name: str) -> None:
    entry = BY_NAME[name].given(NONE)
    for run in entry.runs:
        alone = replace(entry, runs=(replace(run, backend="namespaces"),))
        found = EntryResult(name)
        found.take({"event": "run", "run": run.name})
        found.take({"event": "doctor", "report": {"findings": [*IN_FORCE, *weaker("sandbox", *run.weaker)]}})
        found.take({"event": "over"})
        assert found.judge(alone) == []
        found.runs[0].weaker.append("one more")
        assert len(found.judge(alone)) == 1


NO_NAMESPACE, NO_SCOPES = BY_NAME["no-user-namespaces-6.1"].runs[0].lacks


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ((NO_NAMESPACE, NO_SCOPES), True),
        ((NO_NAMESPACE,), False),
        ((NO_NAMESPACE, "there is no /proc"), False),
        ((NO_NAMESPACE, NO_SCOPES, "socket() is allowed"), False),
    ],
)
def test_why_there_is_no_sandbox_must_be_the_reasons_that_the_matrix_has(
    details: tuple[str, ...], *, expected: bool
) -> None:
    entry = BY_NAME["no-user-namespaces-6.1"].given(NONE)
    findings = [finding("sandbox", "any", "missing", f"so: {detail}, here") for detail in details]
    assert (result(entry.name, findings).judge(entry) == []) is expected


@pytest.mark.parametrize(("remedy", "expected"), [(lacked("apparmor"), True), ("allow user namespaces", False)])
def test_a_remedy_that_doctor_must_name_is_held_too(remedy: str, *, expected: bool) -> None:
    entry = BY_NAME["apparmor"].given(NONE)
    denied = [finding("sandbox", "bubblewrap", "missing", "Permission denied", f"{remedy}; or else")]
    reports = [[*denied, *weaker("landlock", *run.weaker)] if run.lacks else IN_FORCE for run in entry.runs]
    assert (result("apparmor", *reports).judge(entry) == []) is expected


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    return tmp_path


def rows(page: str, name: str) -> list[str]:
    return [line for line in page.splitlines() if f"ONLY={name}`" in line or f"ONLY={name} FULL=1`" in line]


def test_whole_runs_have_rows_of_their_own_and_looks_at_some_tests_have_none(folder: Path) -> None:
    page = f"before\n{table.HEAD}| `make test-kernels ONLY=yama` | as it was |\n| gone |\nafter\n"
    result("unit", IN_FORCE).keep()
    short = table.written(page)
    assert [row.split(" | ")[5:8] for row in rows(short, "unit")] == [["namespaces", "nothing", "1"]]
    assert rows(short, "yama") == ["| `make test-kernels ONLY=yama` | as it was |"]
    assert "not run" in rows(short, "6.1")[0]
    assert "gone" not in short
    result("unit", weaker("sandbox", "ipc"), tests="tests/attacks").keep()
    result("unit", weaker("sandbox", "ipc"), tests=NONE).keep()
    assert table.written(short) == short
    result("unit", weaker("sandbox", "ipc"), tests=FULL).keep()
    assert [row.split(" | ")[6] for row in rows(table.written(short), "unit")] == ["nothing", "ipc"]
    assert len(list(folder.iterdir())) == 4


def test_the_page_has_the_rows_of_todays_matrix() -> None:
    text = table.PAGE.read_text(encoding="utf-8")
    shown = list(dict.fromkeys(re.findall(r"^\| `make test-kernels ONLY=([\w.-]+)`", text, re.MULTILINE)))
    assert shown == [entry.name for entry in ENTRIES]
    for name in shown:
        as_whom = {row.split(" | ")[4] for row in rows(text, name)}
        assert as_whom == {run.name for run in BY_NAME[name].runs} or as_whom == {"not run"}, name
