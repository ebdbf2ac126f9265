from __future__ import annotations

from pathlib import Path

import pytest
from fumehood_sandbox import Level
from fumehood_server.errors import PluginInvalidError
from fumehood_server.model.plugin import Kind
from fumehood_server.model.tool import DeclaredLimits, ExecutionMode
from fumehood_server.plugins.manifest import try_manifest

from .support import cli, executable, manifest_of, python

CLI = """\
[plugin]
name = "grep"
version = "1.0.0"
kind = "cli"
binary = "grep"

[[tool]]
name = "search_text"
description = "Searches text."
side_effects = "read"
idempotent = true
requires = ["read"]
timeout_s = 10
execution_mode = "sequential"
argv = ["-n", {if = "fold", args = ["-i"]}, "-e", "{pattern}", "--", "{path}"]
success_exit_codes = [0, 1]

[tool.input_schema]
type = "object"
required = ["pattern", "path"]
[tool.input_schema.properties]
pattern = {type = "string"}
path = {type = "string"}
fold = {type = "boolean"}

[tool.limits]
memory_bytes = 100000000
"""


def refusals(folder: Path, text: str) -> list[str]:
    (folder / "plugin.toml").write_text(text)
    reading = try_manifest(folder)
    assert (reading.manifest is None) == bool(reading.problems)
    for problem in reading.problems:
        assert isinstance(problem, PluginInvalidError)
        assert str(problem).startswith(f"{folder}/plugin.toml:{problem.line}: ")
    return [str(problem).removeprefix(f"{folder}/plugin.toml:") for problem in reading.problems]


def test_a_whole_manifest_is_read(tmp_path: Path) -> None:
    assert refusals(tmp_path, CLI) == []
    manifest = manifest_of(tmp_path)
    assert (manifest.name, manifest.kind, manifest.binary) == ("grep", Kind.CLI, "grep")
    (tool,) = manifest.tools
    assert (tool.name, tool.side_effects, tool.idempotent) == ("search_text", Level.READ, True)
    assert tool.requires == ("binary:grep", "read")
    assert (tool.timeout_s, tool.execution_mode) == (10.0, ExecutionMode.SEQUENTIAL)
    assert tool.limits == DeclaredLimits(memory_bytes=100_000_000)
    assert tool.input_schema_json.startswith('{"properties":{"fold":')


def test_each_kind_is_read(tmp_path: Path) -> None:
    assert manifest_of(executable(tmp_path / "a")).command == ("./run",)
    assert manifest_of(cli(tmp_path / "b")).binary == "grep"
    assert manifest_of(python(tmp_path / "c")).entrypoint == "code:plugin"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('kind = "cli"', 'kind = "cly"', '4: unknown kind "cly" for `kind` in [plugin] (did you mean "cli"?)'),
        ('kind = "cli"', "kind = 3", "4: the kind must be a string"),
        ('name = "grep"', 'name = "Grep 2"', '2: "Grep 2" is not a plugin\'s name'),
        ('version = "1.0.0"', "version = 1", "3: a version is one line"),
        ('version = "1.0.0"', 'verzion = "1"', '3: unknown key `verzion` in [plugin] (did you mean "version"?)'),
        ('version = "1.0.0"', "", "1: `version` is missing in [plugin]"),
        ('version = "1.0.0"', 'version = "1"\nprotocol = 2', "4: protocol version 2 is not spoken here"),
        ('binary = "grep"', "", '1: `binary` is missing in [plugin] of kind "cli" (write binary = "grep")'),
        ('binary = "grep"', 'binary = "bin/grep"', '5: `binary`: "bin/grep" is not the name of a program'),
        ('binary = "grep"', 'binary = "grep"\ncommand = ["x"]', '6: `command` is not for kind "cli"'),
        ('side_effects = "read"', "", '7: tool "search_text": `side_effects` is missing (declare one of "none"'),
        ('side_effects = "read"', 'side_effects = "raed"', 'unknown word "raed" (did you mean "read"?)'),
        ('side_effects = "read"', 'side_efects = "read"', "unknown key `side_efects` in [[tool]] (did you mean"),
        ('side_effects = "read"', 'side_effects = "none"', '"read" can\'t be had at level "none"'),
        ('["read"]', '["raed"]', '12: tool "search_text": `requires` unknown capability "raed" (did you mean "read"?)'),
        ('["read"]', '["host:x"]', '`requires` "host:x" is not a capability (write "host:NAME:PORT")'),
        ('"search_text"', '"Search"', '8: tool "Search": `name` "Search" is not a tool\'s name (1 to 64 of'),
        ("timeout_s = 10", "timeout_s = 0", '13: tool "search_text": `timeout_s` must be more than 0'),
        ("timeout_s = 10", "timeout_s = 3601", "must be more than 0 and at most 3600 seconds"),
        ("timeout_s = 10", "timeout_s = inf", "must be more than 0 and at most 3600 seconds"),
        ("timeout_s = 10", 'timeout_s = "10"', "13: `timeout_s` in [[tool]] must be a number"),
        ("timeout_s = 10", 'isolation = "cal"', '`isolation` unknown word "cal" (did you mean "call"?)'),
        ('"sequential"', '"serial"', '14: tool "search_text": `execution_mode` unknown word'),
        ("{pattern}", "{patern}", '15: tool "search_text": `argv.3` "patern" is not a property of the input schema'),
        ('if = "fold"', 'if = "flod"', '`argv.1` "flod" is not a property of the input schema (did you mean "fold"?)'),
        ('pattern = {type = "string"', 'pattern = {type = "object"', '`argv.3` "pattern" is neither text, a'),
        ("argv = [", "argv = [3, ", "`argv.0` is not an element of a template"),
        ("{pattern}", "{pattern", '15: tool "search_text": `argv.3` a lone {'),
        ('required = ["pattern", ', "required = [", '`argv.3` "pattern" may be missing: require it'),
        ("[0, 1]", "[0, 300]", "16: `success_exit_codes[1]` in [[tool]] must be at most 255"),
        ('type = "object"', 'type = "array"', '18: tool "search_text": `input_schema` must have "type": "object"'),
        ("memory_bytes = ", "memory = ", 'unknown key `memory` in [tool.limits] (did you mean "memory_bytes"?)'),
        ("memory_bytes = 100000000", "memory_bytes = -1", "`limits.memory_bytes` must be more than 0"),
        ("[[tool]]", "[tool]", "`tool` must be an array (write [[tool]])"),
        ("[plugin]", "[pluggin]", '1: unknown key `pluggin` (did you mean "plugin"?)'),
        ('description = "Searches text."', 'description = " "', '9: tool "search_text": `description` is missing'),
        ("fold = {type", "fold = {when = 2020-01-01, type", "a schema holds no date or time"),
    ],
)  # fmt: skip
def test_a_slip_is_refused_with_its_line_and_what_to_write(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in CLI
    found = refusals(tmp_path, CLI.replace(old, new, 1))
    assert any(expected in each for each in found), found
    if expected[0].isdigit():
        assert any(each.startswith(expected) for each in found), found


def test_every_problem_is_found_at_once_in_order_of_lines(tmp_path: Path) -> None:
    text = CLI.replace('"read"\n', '"raed"\n', 1).replace("timeout_s = 10", "timeout_s = 0").replace("{path}", "{p}")
    found = refusals(tmp_path, text)
    assert [int(each.split(":")[0]) for each in found] == sorted(int(each.split(":")[0]) for each in found)
    assert len(found) >= 2


def test_two_tools_of_one_name_are_refused(tmp_path: Path) -> None:
    tool = CLI[CLI.index("[[tool]]") :]
    assert refusals(tmp_path, CLI + tool.replace("search_text", "search_more")) == []
    (found,) = refusals(tmp_path, CLI + tool)
    assert "`name` is the name of two tools (rename one)" in found


def test_a_python_plugin_declares_its_tools_in_code_alone(tmp_path: Path) -> None:
    text = (python(tmp_path) / "plugin.toml").read_text()
    name = f'name = "{tmp_path.name}"'
    text = text.replace(name, 'name = "code"')
    assert refusals(tmp_path, text) == []
    found = refusals(tmp_path, text + CLI[CLI.index("[[tool]]") :])
    assert any('[[tool]] is not for kind "python"' in each and "decorators are the source" in each for each in found)


@pytest.mark.parametrize("entrypoint", ["code", "code:", ":plugin", "absent:plugin", "../code:plugin", "code:a.b"])
def test_an_entrypoint_that_leads_nowhere_is_refused(tmp_path: Path, entrypoint: str) -> None:
    folder = python(tmp_path / "code")
    text = (folder / "plugin.toml").read_text()
    assert refusals(folder, text) == []
    (found,) = refusals(folder, text.replace("code:plugin", entrypoint))
    assert "`entrypoint`" in found


@pytest.mark.parametrize("command", ['["/bin/sh"]', '["../run"]', '["./absent"]', "[]", '[""]', '["./plugin.toml"]'])
def test_a_command_is_a_program_of_path_or_of_the_folder(tmp_path: Path, command: str) -> None:
    folder = executable(tmp_path / "echo")
    text = (folder / "plugin.toml").read_text()
    assert refusals(folder, text) == []
    assert refusals(folder, text.replace('["./run"]', '["node", "index.js"]')) == []
    (found,) = refusals(folder, text.replace('["./run"]', command))
    assert "`command`" in found


def test_a_link_out_of_the_folder_is_no_command(tmp_path: Path) -> None:
    folder = executable(tmp_path / "echo")
    (folder / "run").unlink()
    (folder / "run").symlink_to("/bin/sh")
    (found,) = refusals(folder, (folder / "plugin.toml").read_text())
    assert "lies outside of the plugin's folder" in found


def test_keys_of_the_cli_kind_are_refused_elsewhere(tmp_path: Path) -> None:
    folder = executable(tmp_path / "echo")
    text = (folder / "plugin.toml").read_text()
    (found,) = refusals(folder, text + 'argv = ["x"]\n')
    assert '`argv` is for kind "cli" alone (remove it)' in found
    (found,) = refusals(folder, text[: text.index("[[tool]]")])
    assert "declares no tool" in found
    folder = cli(tmp_path / "cli")
    (found,) = refusals(folder, (folder / "plugin.toml").read_text().replace("argv", "# argv"))
    assert "`argv` is missing" in found


def test_a_folder_without_a_manifest_keeps_its_folders_name(tmp_path: Path) -> None:
    reading = try_manifest(tmp_path)
    assert reading.name == tmp_path.name
    assert "a plugin is a folder with a plugin.toml" in str(reading.problems[0])
    assert try_manifest(tmp_path / "absent").manifest is None


def test_a_name_is_known_even_when_the_rest_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "plugin.toml").write_text('[plugin]\nname = "dice"\nkind = "x"\n')
    assert try_manifest(tmp_path).name == "dice"


def test_a_program_may_prepare_arguments_and_the_cli_kind_may_not(tmp_path: Path) -> None:
    key = "idempotent = true\nprepares_arguments = true\n"
    line = 1 + CLI[: CLI.index("idempotent")].count("\n") + 1
    (refusal,) = refusals(tmp_path, CLI.replace("idempotent = true\n", key))
    assert refusal.startswith(f"{line}: ")
    assert '`prepares_arguments` is not for kind "cli"' in refusal
    program = CLI.replace('kind = "cli"\nbinary = "grep"', 'kind = "executable"\ncommand = ["grep"]')
    program = "\n".join(each for each in program.splitlines() if not each.startswith(("argv", "success"))) + "\n"
    assert refusals(tmp_path, program.replace("idempotent = true\n", key)) == []
    assert manifest_of(tmp_path).tools[0].prepares_arguments
