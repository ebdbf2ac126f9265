"""Control characters of tools, plugins and sidecars never reach a terminal, by whichever command."""

from __future__ import annotations

import ast
import json
import time
from collections.abc import Iterator
from pathlib import Path

import fumehood_server.cli
import pytest

from tests.cli.command import TIMEOUT_S, fumehood, on_terminal
from tests.cli.hostile import CONTROLS, FORGED, HOSTILE, raw_controls, running_hostile
from tests.sidecar import Sidecar, write_plugin

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
    if command[0] != "call" or command[1] == "fails":  # what a tool returns is its own, whatever stands in it
        for width in ("60", "100"):
            _, shown = on_terminal(*command, address=hostile, more={"COLUMNS": width})
            assert lines_begun(shown) == []
        done = fumehood(*command, address=hostile)
        assert lines_begun(done.stdout + done.stderr) == []
    if command != ("tools",):  # which lists what can be called: nothing
        assert "\\u001b" in as_json.stdout + as_json.stderr
        assert "<␛>" in shown


def lines_begun(text: str) -> list[str]:
    """Lines that begin with what a plugin had after a newline, as if this command said it."""
    return [line for line in text.splitlines() if line.startswith(FORGED)]


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


def forging(folder: Path, *, plugin: str = "", tool: str = "", name: str = "odd") -> Path:
    """A plugin whose manifest has more lines in its tables. `KEY` in them is a key with a newline in it."""
    key = json.dumps(f"a\n\n{FORGED}")
    folder.mkdir()
    (folder / "plugin.toml").write_text(
        f"""
[plugin]
name = {json.dumps(name)}
version = "1.0.0"
kind = "cli"
binary = "true"
{plugin.replace("KEY", key)}

[[tool]]
name = "odd"
description = "Does what is odd in a folder."
side_effects = "none"
argv = []
{tool.replace("KEY", key)}
"""
    )
    return folder


PROPERTY = '[tool.input_schema]\ntype = "object"\n[tool.input_schema.properties.KEY]\ntype = "integer"\ndefault = "x"'


def test_no_name_or_key_of_a_plugin_begins_a_line_of_its_review(tmp_path: Path) -> None:
    for status, said, folder in (
        (0, "has no description", forging(tmp_path / "property", tool=PROPERTY)),
        (0, "does not fit its own schema", forging(tmp_path / "default", tool=PROPERTY)),
        (1, "unknown key", forging(tmp_path / "key", plugin="KEY = 1")),
        (1, "name", forging(tmp_path / "name", name=f"odd\n{FORGED}")),
    ):
        for command in (("plugin", "check", folder), ("plugin", "add", "--yes", folder)):
            done = fumehood(*command, folder=tmp_path)
            _, shown = on_terminal(*command, folder=tmp_path, more={"COLUMNS": "400"})
            assert done.status == status, done.stderr
            assert said in done.stdout + done.stderr
            assert lines_begun(done.stdout + done.stderr + shown) == []
            assert not any(line.strip().startswith(FORGED) for line in (done.stdout + done.stderr).splitlines())


def test_a_callers_request_id_makes_no_row_of_the_journal(sidecar: Sidecar) -> None:
    run = f"run-1\n{FORGED}"
    done = fumehood("call", "say", "text=x", "--run", run, "--call-id", "forges-a-row", address=sidecar.target)
    assert done.status == 0, done.stderr
    config = ("--config", sidecar.folder / "fumehood.toml")
    deadline = time.monotonic() + TIMEOUT_S
    # Of a call at level none nobody waits for the record.
    while "say" not in fumehood("journal", "list", "--call", "forges-a-row", *config).stdout:
        assert time.monotonic() < deadline
    for command in (("list", "--call", "forges-a-row"), ("show", "forges-a-row"), ("show", run)):
        done = fumehood("journal", *command, *config)
        _, shown = on_terminal("journal", *command, *config)
        assert "say" in done.stdout
        assert lines_begun(done.stdout + done.stderr + shown) == []
        if command[0] == "list":
            heading, row = done.stdout.splitlines()
            assert f"run-1␊{FORGED}" in row, heading


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
