"""The Python examples as their authors would test them: in-process, by `fumehood_sdk.testing`, without a sidecar."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from fumehood_sdk import Plugin
from fumehood_sdk.testing import ToolTester

PLUGINS = Path(__file__).parents[2] / "examples" / "plugins"


def load(name: str) -> Plugin:
    """The plugin of a folder, imported under a name that hides nothing."""
    module_name = f"example_{name}"
    if module_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(module_name, PLUGINS / name / f"{name}.py")
        assert spec
        assert spec.loader
        sys.modules[module_name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module_name])
    plugin = sys.modules[module_name].plugin
    assert isinstance(plugin, Plugin)
    return plugin


def test_a_roll_is_logged_and_adds_up() -> None:
    result = ToolTester(load("dice")).call("roll_dice", count=3, sides=20)
    assert result.details["total"] == sum(result.details["rolls"])
    assert [(line.message, line.fields) for line in result.logs] == [("rolled", {"count": 3, "sides": 20})]


def test_a_die_of_seven_sides_is_refused_before_the_tool_runs() -> None:
    result = ToolTester(load("dice")).call("roll_dice", count=1, sides=7)
    assert result.error
    assert result.error.reason == "invalid_arguments"
    assert not result.logs


def test_equal_texts_have_no_difference() -> None:
    result = ToolTester(load("text")).call("diff_text", before="same\n", after="same\n")
    assert result.details == {"unified_diff": "", "added_lines": 0, "removed_lines": 0, "similarity": 1.0}


def test_a_count_stops_where_it_is_cancelled() -> None:
    running = ToolTester(load("text")).start("slow_count", upto=10_000, delay_ms=10)
    assert running.wait_for_update(2).progress == 2
    running.cancel()
    result = running.result()
    assert result.error
    assert result.error.reason == "cancelled"
    assert len(result.updates) < 10_000


@pytest.mark.parametrize("path", ["../secret.txt", "{top}/secret.txt", "out.txt"])
def test_a_path_out_of_the_grants_is_refused_in_words(tmp_path: Path, path: str) -> None:
    granted = tmp_path / "granted"
    granted.mkdir()
    (tmp_path / "secret.txt").write_text("the secret")
    (granted / "out.txt").symlink_to(tmp_path / "secret.txt")
    (granted / "in.txt").write_text("a letter")
    tester = ToolTester(load("files"), readable_paths=[str(granted)])
    assert tester.call("read_file", path="in.txt").details["text"] == "a letter"
    result = tester.call("read_file", path=path.format(top=tmp_path))
    assert result.error
    assert (result.error.reason, result.error.details["granted"]) == ("outside_grants", [str(granted)])


def test_what_is_granted_for_reading_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "read").mkdir()
    (tmp_path / "write").mkdir()
    tester = ToolTester(
        load("files"), readable_paths=[str(tmp_path / "read")], writable_paths=[str(tmp_path / "write")]
    )
    assert tester.call("write_file", path="a/b.txt", text="x").error is None
    result = tester.call("write_file", path=str(tmp_path / "read" / "b.txt"), text="x")
    assert result.error
    assert result.error.reason == "outside_grants"
    assert [each.name for each in tmp_path.rglob("*.txt")] == ["b.txt"]


def test_code_runs_and_leaves_its_status() -> None:
    result = ToolTester(load("run_python")).call("run_python", code="print(6 * 7); raise SystemExit(3)")
    assert (result.details["stdout"], result.details["exit_status"]) == ("42\n", 3)


def test_end_of_code_ends_nothing_but_what_it_started() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as beside:
        assert ToolTester(load("run_python")).call("run_python", code="pass").details["exit_status"] == 0
        assert beside.poll() is None
        beside.communicate(b"\n", timeout=30)
    assert beside.returncode == 0


def test_what_code_has_started_is_not_waited_for() -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '1000']).pid)"
    result = ToolTester(load("run_python")).call("run_python", code=code)
    assert (result.details["exit_status"], result.details["timed_out"]) == (0, False)


def test_code_that_is_cancelled_ends() -> None:
    running = ToolTester(load("run_python")).start("run_python", code="import time; time.sleep(1000)")
    running.cancel()
    assert running.result().error
