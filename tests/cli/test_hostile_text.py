"""Control characters of tools, plugins and sidecars never reach a terminal, by whichever command."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import fumehood_server.cli
import pytest

from tests.cli.command import fumehood, on_terminal
from tests.cli.hostile import CONTROLS, HOSTILE, raw_controls, running_hostile
from tests.sidecar import write_plugin

COMMANDS = (
    ("tools",),
    ("tools", "--all"),
    ("tools", "odd"),
    ("tools", "absent"),
    ("call", "fails"),
    ("call", "odd", "--stream"),
    ("plugin", "list"),
    ("plugin", "show", "odd"),
    ("plugin", "reload", "odd"),
    ("reload",),
    ("plugin", "logs", "odd"),
)


@pytest.fixture(scope="module")
def hostile() -> Iterator[str]:
    with running_hostile() as target:
        yield target


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_passes_control_characters_on(hostile: str, command: tuple[str, ...]) -> None:
    as_json = fumehood(*command, "--json", address=hostile)
    _, shown = on_terminal(*command, address=hostile)
    for text in (as_json.stdout, as_json.stderr, shown):
        assert raw_controls(text) == []
        assert "\x1b]0;" not in text
    if command != ("tools",):  # which lists what can be called: nothing
        assert "\\u001b" in as_json.stdout + as_json.stderr
        assert "<␛>" in shown


def test_json_holds_the_text_as_it_was_sent(hostile: str) -> None:
    done = fumehood("call", "fails", "--json", address=hostile)
    assert done.json["error"]["message"] == HOSTILE
    assert list(done.json["details"]["properties"]) == [HOSTILE]


def test_through_a_pipe_a_line_of_a_plugins_log_is_one_line_and_escaped(hostile: str) -> None:
    done = fumehood("plugin", "logs", "odd", address=hostile)
    assert len(done.stdout.splitlines()) == 1
    assert "forged" in done.stdout
    assert raw_controls(done.stdout) == []


def test_through_a_pipe_tables_and_errors_are_escaped_too(hostile: str) -> None:
    listed, failed = fumehood("tools", "--all", address=hostile), fumehood("call", "fails", address=hostile)
    assert raw_controls(listed.stdout + listed.stderr + failed.stdout + failed.stderr) == []
    assert "<␛>" in listed.stdout
    assert "<␛>" in failed.stderr


def test_the_content_of_a_result_is_data_through_a_pipe_and_escaped_on_a_terminal(hostile: str) -> None:
    assert HOSTILE in fumehood("call", "odd", address=hostile).stdout
    _, shown = on_terminal("call", "odd", address=hostile)
    assert raw_controls(shown) == []
    assert "<␛>" in shown


PLUGIN = f"""
    import pathlib, sys
    from fumehood_sdk import Plugin

    HOSTILE = {HOSTILE!r}
    sys.stderr.write(HOSTILE)
    plugin = Plugin("odd", version="1.0.0")

    def odd(text: str = HOSTILE) -> str:
        return text

    odd.__doc__ = "Say it.\\n\\n" + HOSTILE
    plugin.tool(side_effects="none")(odd)
    if (pathlib.Path(__file__).parent / "broken").exists():
        raise ValueError(HOSTILE)
"""


def test_a_plugins_folder_can_give_no_orders_to_whoever_looks_at_it(tmp_path: Path) -> None:
    good = write_plugin(tmp_path / "odd", "odd", PLUGIN)
    broken = write_plugin(tmp_path / "broken\x1b]0;title\x07", "odd", PLUGIN)
    (broken / "broken").touch()
    for status, command in (
        (1, ("plugin", "check", broken)),
        (0, ("plugin", "check", good, "--json")),
        (0, ("plugin", "add", "--yes", good)),
    ):
        ended, shown = on_terminal(*command, folder=tmp_path)
        assert status == ended, shown
        assert raw_controls(shown) == []
        assert "\x1b]0;" not in shown
        assert "add" in command or "forged" in shown


def test_only_the_output_module_writes() -> None:
    """One way to the terminal, so that no command can forget to escape."""
    found = []
    for path in Path(fumehood_server.cli.__file__).parent.rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        writes = [node for node in calls if ast.unparse(node.func) in {"click.echo", "click.secho", "print"}]
        found += [f"{path.name}:{node.lineno}" for node in writes]
    assert {each.partition(":")[0] for each in found} <= {"output.py", "root.py"}, found
    assert len([each for each in found if each.startswith("root.py")]) <= 1  # click's own help page


def test_the_controls_are_those_that_a_terminal_could_act_on() -> None:
    assert {"\x1b", "\x9b", "\x7f", "\r", "\u202e", "\u2066"} <= set(CONTROLS)
