"""`fumehood plugin new|check|add`: what is done to folders and files, without a sidecar."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import google.protobuf
import pytest

from tests.cli.command import TIMEOUT_S, fumehood
from tests.plugins.support import cli, executable, tool_toml
from tests.sidecar import running_sidecar, write_plugin

REPORT_KEYS = [
    "ok",
    "name",
    "path",
    "version",
    "kind",
    "digest",
    "problems",
    "warnings",
    "asks_for",
    "tools",
]
CODE = """
    from fumehood_sdk import Plugin
    plugin = Plugin("notes", version="1.0.0")

    @plugin.tool(side_effects="write", requires=["write"], idempotent=True)
    def note_down(text: str) -> str:
        \"\"\"Note a text down for later, and return it.

        Args:
            text: The text.
        \"\"\"
        return text
"""


def test_a_new_python_plugin_passes_its_own_test_and_the_check_and_can_be_called(tmp_path: Path) -> None:
    assert fumehood("plugin", "new", "greeter", folder=tmp_path).status == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "greeter"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    report = fumehood("plugin", "check", "greeter", "--json", folder=tmp_path)
    assert (report.status, report.json["problems"], report.json["warnings"]) == (0, [], [])
    with running_sidecar([tmp_path / "greeter"]) as sidecar:
        called = fumehood("call", "greeter_hello", "names=Ada", "language=de", address=sidecar.target)
    assert json.loads(called.stdout) == {"greetings": ["Guten Tag, Ada!"]}


def test_a_new_cli_plugin_passes_its_own_test_and_the_check_and_can_be_called(tmp_path: Path) -> None:
    assert fumehood("plugin", "new", "prints", "--kind", "cli", folder=tmp_path).status == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "prints"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    report = fumehood("plugin", "check", "prints", "--json", folder=tmp_path)
    assert (report.status, report.json["problems"], report.json["warnings"]) == (0, [], [])
    with running_sidecar([tmp_path / "prints"]) as sidecar:
        called = fumehood("call", "prints_hello", "names=Ada", "names=-n", "--json", address=sidecar.target)
    assert called.json["content"][0]["text"] == "Hello, Ada!\nHello, -n!\n"
    assert called.json["details"] == {"exit_code": 0, "truncated": False}


GIT = """
[plugin]
name = "history"
version = "1"
kind = "cli"
binary = "git"

[[tool]]
name = "git_log"
description = "Show the subjects of the commits of a repository."
side_effects = "read"
idempotent = true
requires = ["read"]
argv = ["log", "--format=%s"]
working_folder = "{repository}"
[tool.input_schema]
type = "object"
required = ["repository"]
properties.repository.type = "string"

[[tool]]
name = "sort_lines"
description = "Sort the lines of a text by a program of its own."
side_effects = "none"
binary = "sort"
argv = []
stdin = "{text}"
[tool.input_schema]
type = "object"
properties.text = {type = "string", default = "b\\na"}

[[tool]]
name = "absent"
description = "Run a program that is not installed here."
side_effects = "none"
binary = "no-such-program"
argv = []
[tool.input_schema]
type = "object"
"""


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_git_reads_a_granted_repository_beside_tools_with_programs_of_their_own(tmp_path: Path) -> None:
    repository, plugin = tmp_path / "repository", tmp_path / "history"
    plugin.mkdir()
    (plugin / "plugin.toml").write_text(GIT)
    who = ["-c", "user.name=A", "-c", "user.email=a@b"]
    commit = ["-C", str(repository), *who, "commit", "-q", "--allow-empty", "-m", "First"]
    for command in (["init", "-q", str(repository)], commit):
        subprocess.run(["git", *command], check=True)  # noqa: S607 - whichever git the machine has
    grants = f'[[plugin]]\npath = "{plugin}"\nread = ["{repository}"]\n'
    with running_sidecar([], more=grants) as sidecar:
        log = fumehood("call", "git_log", f"repository={repository}", address=sidecar.target)
        lines = fumehood("call", "sort_lines", "--json", address=sidecar.target)
        absent = fumehood("tools", "absent", "--json", address=sidecar.target).json["tool"]["availability"]
    assert (log.status, log.stdout.splitlines()[0]) == (0, "First"), log.stderr
    assert lines.json["content"][0]["text"] == "a\nb\n"
    assert [reason["code"] for reason in absent["reasons"]] == ["binary_missing"]


def test_a_new_plugin_named_like_a_module_of_python_hides_nothing(tmp_path: Path) -> None:
    fumehood("plugin", "new", "json", folder=tmp_path)
    assert not (tmp_path / "json" / "json.py").exists()
    assert fumehood("plugin", "check", "json", folder=tmp_path).status == 0


def test_a_new_executable_in_python_needs_only_protobuf_and_can_be_called(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    assert fumehood("plugin", "new", folder, "--kind", "executable").status == 0
    # What `pip install --target vendor protobuf` does, without a network.
    source = Path(google.protobuf.__file__).parent
    for name in ("protobuf", "_upb"):
        shutil.copytree(source.with_name(name), folder / "vendor" / "google" / name)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _UNITTEST, folder],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with running_sidecar([folder]) as sidecar:
        called = fumehood("call", "plain_hello", "names=Ada", "--stream", address=sidecar.target)
        failed = fumehood("call", "plain_hello", "names= ", "--json", address=sidecar.target)
    assert (json.loads(called.stdout), called.stderr) == ({"greetings": ["Hello, Ada!"]}, "[1/1] greeting Ada\n")
    assert (failed.status, failed.json["error"]["details"]["reason"]) == (1, "blank_name")


_UNITTEST = """
import sys, unittest
sys.path.insert(0, sys.argv[1])
sys.exit(not unittest.TextTestRunner().run(unittest.TestLoader().discover(sys.argv[1])).wasSuccessful())
"""


def test_a_new_executable_in_node_passes_its_own_test_and_can_be_called(tmp_path: Path) -> None:
    modules = Path(__file__).parents[2] / "examples/plugins/regex-node/node_modules"
    if shutil.which("node") is None or not modules.exists():
        pytest.skip("needs Node and the example's packages: `make setup` gets both")
    folder = tmp_path / "nodding"
    assert fumehood("plugin", "new", folder, "--kind", "executable", "--language", "node").status == 0
    shutil.copytree(modules, folder / "node_modules", symlinks=True)
    done = subprocess.run(
        ["node", "--test"],  # noqa: S607 - whichever Node the machine has
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    with running_sidecar([folder]) as sidecar:
        called = fumehood("call", "nodding_hello", "names=Ada", address=sidecar.target)
    assert json.loads(called.stdout) == {"greetings": ["Hello, Ada!"]}


@pytest.mark.parametrize("name", ["Greeter", "1st", "a b", "x" * 65])
def test_a_name_that_no_plugin_can_have_is_status_2_and_writes_nothing(name: str, tmp_path: Path) -> None:
    assert fumehood("plugin", "new", name, folder=tmp_path).status == 2
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_already_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "greeter").mkdir()
    assert fumehood("plugin", "new", "greeter", folder=tmp_path).status == 2
    assert list((tmp_path / "greeter").iterdir()) == []


def test_check_names_file_line_and_the_nearest_word_of_every_problem(tmp_path: Path) -> None:
    (tmp_path / "plugin.toml").write_text('[plugin]\nname = "x"\nversion = "1"\nkind = "pithon"\nentrypont = "x:y"\n')
    done = fumehood("plugin", "check", tmp_path)
    assert done.status == 1
    assert f'{tmp_path}/plugin.toml:4: unknown kind "pithon"' in done.stdout
    assert 'did you mean "python"?' in done.stdout
    assert f"{tmp_path}/plugin.toml:5: unknown key `entrypont`" in done.stdout
    report = fumehood("plugin", "check", tmp_path, "--json").json
    assert list(report) == REPORT_KEYS
    assert list(report["problems"][0]) == ["code", "message", "remedy", "file", "line", "key"]
    assert [problem["line"] for problem in report["problems"]] == [4, 5]


def test_check_names_the_line_of_the_plugin_s_own_file_where_its_import_fails(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "broken", "broken", "\n\nimport nowhere_to_be_found")
    done = fumehood("plugin", "check", folder, "--json")
    assert done.status == 1
    problem = done.json["problems"][0]
    assert (problem["file"], problem["line"]) == (f"{folder}/broken.py", 3)
    assert "ModuleNotFoundError: No module named 'nowhere_to_be_found'" in problem["message"]
    version = ".".join(map(str, sys.version_info[:2]))
    for each in (f"no {folder}/plugin.lock", f"CPython {version}", f"fumehood plugin lock {folder}"):
        assert each in problem["remedy"]


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo cannot find the moon >&2; exit 3", ["exited with status 3", "cannot find the moon"]),
        ("echo Hello, I am your plugin", ["in the middle of a frame", "something was printed to stdout"]),
        ("/bin/cat /etc/shadow >&2", ["ended at start, before it was ready"]),
    ],
)
def test_check_starts_a_program_in_its_sandbox_and_says_why_it_is_not_ready(
    script: str, told: list[str], tmp_path: Path
) -> None:
    folder = executable(tmp_path / "starts")
    (folder / "run").write_text(f"#!/bin/sh\n{script}\n")
    done = fumehood("plugin", "check", folder, "--json")
    assert (done.status, done.json["ok"], done.json["problems"][0]["code"]) == (1, False, "describe_failed")
    said = done.json["problems"][0]["message"]
    assert all(each in said for each in ["starts did not start: ", *told]), said


def test_check_starts_a_program_that_speaks_the_protocol(tmp_path: Path) -> None:
    done = fumehood("plugin", "check", cli(tmp_path / "greps"))
    assert (done.status, "No problems." in done.stdout) == (0, True), done.stdout


def test_a_program_that_is_not_there_is_a_problem_and_nothing_is_pinned(tmp_path: Path) -> None:
    folder = cli(tmp_path / "absent", binary="no-such-program")
    checked = fumehood("plugin", "check", folder)
    assert checked.status == 1
    assert checked.stdout.startswith(f'{folder}/plugin.toml: "no-such-program" was not found\n  install it, or ')
    added = fumehood("plugin", "add", folder, "--yes", folder=tmp_path)
    assert (added.status, "Nothing was pinned" in added.stderr) == (1, True)
    assert f'{folder}/plugin.toml: "no-such-program" was not found' in added.stderr
    assert not (tmp_path / "fumehood.lock").exists()


def test_check_goes_by_the_configuration_of_its_working_folder_and_refuses_an_invalid_one(tmp_path: Path) -> None:
    plugin = cli(tmp_path / "some", tool_toml("t", extra="argv = []\n[tool.limits]\nprocesses = 100"))
    config = tmp_path / "fumehood.toml"
    for text, warned in (("", False), ("[limits.cap]\nprocesses = 50\n", True)):
        config.write_text(text)
        checked = fumehood("plugin", "check", plugin, folder=tmp_path)
        assert (checked.status, "limits.processes = 100 is above the cap" in checked.stdout) == (0, warned)
    config.write_text("[limits.cap]\nprocesses = 0\n")
    for command in (("plugin", "check", plugin), ("plugin", "dev", plugin)):
        refused = fumehood(*command, folder=tmp_path)
        assert (refused.status, f"{config}:2: `processes` in [limits.cap]" in refused.stderr) == (2, True), refused


def test_check_shows_what_the_plugin_asks_for(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "notes", "notes", CODE)
    report = fumehood("plugin", "check", folder, "--json").json
    assert list(report) == REPORT_KEYS
    assert report["asks_for"] == {"side_effects": ["write"], "capabilities": ["write"]}
    assert (report["kind"], report["tools"][0]["name"]) == ("python", "note_down")
    assert "note_down" in fumehood("plugin", "check", folder).stdout


def test_add_pins_and_appends_an_entry_that_grants_only_what_was_said(tmp_path: Path) -> None:
    write_plugin(tmp_path / "notes", "notes", CODE)
    (tmp_path / "out").mkdir()
    (tmp_path / "fumehood.toml").write_text('# mine\n[server]\nlisten = ["unix:s"]')
    options = ("--max-side-effects", "write", "--write", "out")
    done = fumehood("plugin", "add", "notes", "--yes", *options, folder=tmp_path)
    assert done.status == 0, done.stderr
    assert (tmp_path / "fumehood.toml").read_text() == (
        '# mine\n[server]\nlisten = ["unix:s"]\n\n'
        '[[plugin]]\npath = "notes"\nmax_side_effects = "write"\nwrite = ["out"]\n'
    )
    assert json.loads((tmp_path / "fumehood.lock").read_text())["plugins"]["notes"]["tools"].keys() == {"note_down"}
    again = fumehood("plugin", "add", "notes", folder=tmp_path)
    assert (again.status, "Exactly this is pinned already." in again.stdout) == (0, True)


def test_add_without_a_grant_leaves_the_default_and_says_what_is_asked_for(tmp_path: Path) -> None:
    write_plugin(tmp_path / "notes", "notes", CODE)
    shape = fumehood("plugin", "add", "notes", "--yes", "--json", folder=tmp_path).json
    assert list(shape) == [
        "plugin",
        "lock_path",
        "config_path",
        "changes",
        "was_pinned",
        "was_up_to_date",
        "config_appended",
        "pinned",
        "origin",
    ]
    text = (tmp_path / "fumehood.toml").read_text()
    assert '[[plugin]]\npath = "notes"\n# max_side_effects = "write"' in text
    assert "\nmax_side_effects" not in text


def test_add_grants_hosts_and_tells_which_hosts_and_secrets_are_required_beside(tmp_path: Path) -> None:
    required = '"host:a.example:443", "host:b.example:443", "secret:KEY"'
    declared = f'side_effects="read", requires=[{required}]'
    code = f"from fumehood_sdk import Plugin\nplugin = Plugin('asks', version='1')\n@plugin.tool({declared})\n"
    write_plugin(
        tmp_path / "asks", "asks", code + "def ask() -> str:\n    'Asks somebody about something.'\n    return ''\n"
    )
    (tmp_path / "fumehood.toml").write_text("")
    done = fumehood("plugin", "add", "asks", "--yes", "--host", "a.example:443", folder=tmp_path)
    assert done.status == 0, done.stderr
    assert (tmp_path / "fumehood.toml").read_text() == (
        '\n[[plugin]]\npath = "asks"\nhosts = ["a.example:443"]\n'
        '# hosts = ["b.example:443"]      # its tools require these\n'
        '# [plugin.tools.ask]\n# secrets = ["KEY"]      # it requires this\n'
    )
    refused = fumehood("plugin", "add", "asks", "--yes", "--host", "b.example:443", folder=tmp_path)
    assert "names" in refused.stderr
    assert refused.status != 0


def test_add_shows_how_a_pinned_definition_changed_and_pins_nothing_unasked(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "notes", "notes", CODE)
    assert fumehood("plugin", "add", "notes", "--yes", folder=tmp_path).status == 0
    before = (tmp_path / "fumehood.lock").read_bytes()
    module = folder / "notes.py"
    module.write_text(module.read_text().replace("Note a text down", "Send a text off"))
    done = fumehood("plugin", "add", "notes", folder=tmp_path)
    assert done.status == 2
    assert "Not what is pinned: note_down: description" in done.stdout
    assert '-  "description": "Note a text down' in done.stdout
    assert '+  "description": "Send a text off' in done.stdout
    assert "Give --yes" in done.stderr
    assert (tmp_path / "fumehood.lock").read_bytes() == before
    assert fumehood("plugin", "add", "notes", "--yes", folder=tmp_path).status == 0
    assert (tmp_path / "fumehood.lock").read_bytes() != before


def test_a_grant_that_the_configuration_refuses_changes_nothing(tmp_path: Path) -> None:
    write_plugin(tmp_path / "notes", "notes", CODE)
    (tmp_path / "fumehood.toml").write_text("[server]\n")
    options = ("--max-side-effects", "write", "--write", "missing")
    done = fumehood("plugin", "add", "notes", "--yes", "--json", *options, folder=tmp_path)
    assert (done.status, done.error["code"]) == (2, "CONFIG_INVALID")
    assert (tmp_path / "fumehood.toml").read_text() == "[server]\n"
    assert not (tmp_path / "fumehood.lock").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fumehood.toml", "notes"]


def test_a_plugin_with_problems_is_not_added(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "broken", "broken", "import nowhere_to_be_found")
    done = fumehood("plugin", "add", folder, "--yes", folder=tmp_path)
    assert (done.status, "Nothing was pinned" in done.stderr) == (1, True)
    assert not (tmp_path / "fumehood.toml").exists()
