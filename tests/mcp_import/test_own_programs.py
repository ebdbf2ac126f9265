"""A program of this machine is named where a sandbox shows what it needs; else it is copied, or refused."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from fumehood_server.cli.mcp_import.host_configuration import Host, ServerEntry
from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.mcp_import.plan import ServerPlan, plan_server
from fumehood_server.cli.mcp_import.variables import Scope

from tests.cli.command import fumehood
from tests.mcp_import.own_server import IMPORT
from tests.mcp_import.servers import PYTHON
from tests.plugins.wheels import index_environment, make_wheel

COMPILED = Path("/usr/bin/cat").resolve()
"""An ELF file that every sandbox shows."""


def plan(folder: Path, command: str | Path, *arguments: str) -> ServerPlan:
    entry = ServerEntry(name="own", command=str(command), arguments=arguments)
    return plan_server(entry, Scope(host=Host.VSCODE, environment={}, home=folder / "home", workspace=folder))


def program(path: Path, text: str = "") -> Path:
    """A script, or without a text a compiled program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(COMPILED, path) if not text else path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A project's, beside a file of its settings."""
    path = tmp_path / "project" / "server.py"
    path.parent.mkdir()
    path.write_text("")
    (path.parent / "settings.json").write_text("{}")
    return path


@pytest.fixture
def in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that comes first in the PATH."""
    folder = tmp_path / "first" / "bin"
    folder.mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_another_python_by_its_path_becomes_the_sidecars_and_a_note_says_so(tmp_path: Path, script: Path) -> None:
    (tmp_path / "venv").mkdir()
    for name, command in (("venv/bin/python", "python"), ("other/bin/python3", "python3"), ("python3.9", "python3")):
        path = program(tmp_path / name)
        found = plan(tmp_path, path, "-u", str(script))
        assert (found.command.script, found.command.arguments) == (command, ("-u", "code/server.py"))
        assert (found.code, found.program) == (script.parent, None)
        assert any(f"the sidecar's Python, not {path}" in note for note in found.notes)
    (tmp_path / "venv" / "bin" / "python").unlink()
    (tmp_path / "venv" / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    assert plan(tmp_path, tmp_path / "venv" / "bin" / "python", str(script)).notes == ()
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")  # whose packages no sandbox shows
    assert plan(tmp_path, tmp_path / "venv" / "bin" / "python", str(script)).notes


def test_an_interpreter_from_elsewhere_comes_with_its_script(tmp_path: Path, script: Path, in_path: Path) -> None:
    program(in_path / "node")
    node = program(tmp_path / "nvm" / "bin" / "node")
    with node.open("ab") as file:
        file.write(b"another")
    found = plan(tmp_path, node, str(script))
    assert (found.command.script, found.command.arguments) == ("./bin/node", ("code/server.py",))
    assert (found.code, found.program) == (script.parent, node)
    # What needs the folders of its library is shown with them, and not copied.
    ruby = program(tmp_path / "ruby" / "bin" / "ruby")
    found = plan(tmp_path, ruby, str(script))
    assert (found.command.script, found.code, found.program) == (str(ruby), script.parent, None)


def test_a_program_that_every_sandbox_shows_is_named_by_its_path(tmp_path: Path, in_path: Path) -> None:
    program(in_path / COMPILED.name, "#!/bin/sh\n")
    found = plan(tmp_path, COMPILED, "stdio")
    assert (found.command.script, found.program) == (str(COMPILED), None)
    found = plan(tmp_path, program(tmp_path / "elsewhere" / "own"), "stdio")
    assert (found.command.script, found.program) == ("./bin/own", tmp_path / "elsewhere" / "own")


@pytest.mark.parametrize(
    "text",
    [
        "#!{folder}/venv/bin/python\n",
        "#!/usr/bin/env python-of-nobody\n",
        "#!{python}\n",
        "#!/bin/sh\n'''exec' '/a long path/python' \"$0\" \"$@\"\n",
        "#!/usr/bin/env\n",
        "#!\n",
    ],
    ids=["venv", "not there", "user", "long path", "env alone", "none"],
)
def test_a_script_of_the_path_whose_interpreter_or_packages_arent_shown_is_refused(
    tmp_path: Path, in_path: Path, text: str
) -> None:
    program(tmp_path / "venv" / "bin" / "python")
    system_python = shutil.which("python3", path="/usr/bin:/bin") or "/usr/bin/python3"
    program(in_path / "my-server", text.format(folder=tmp_path, python=system_python))
    with pytest.raises(NotImportableError) as caught:
        plan(tmp_path, "my-server")
    assert (caught.value.code, "with uvx or npx" in caught.value.todo) == ("program", True)
    assert str(in_path / "my-server") in caught.value.reason


def test_shims_and_programs_of_npms_folders_are_refused_and_what_runs_as_it_is_is_named(
    tmp_path: Path, in_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shims = program(tmp_path / "rbenv" / "shims" / "ruby", "#!/bin/sh\n").parent
    monkeypatch.setenv("PATH", f"{shims}:{os.environ['PATH']}")
    installed = program(tmp_path / "first" / "lib" / "node_modules" / "notes" / "index.js", "#!/bin/sh\n")
    (in_path / "notes-server").symlink_to(installed)
    with pytest.raises(NotImportableError, match="which no sandbox shows") as caught:
        plan(tmp_path, "ruby", "/x.rb")
    assert "absolute path of the ruby" in caught.value.todo
    with pytest.raises(NotImportableError, match="which no sandbox shows"):
        plan(tmp_path, "notes-server")
    program(in_path / "plain-server", "#!/bin/sh\nexit\n")
    program(in_path / "compiled-server")
    program(in_path / "own-server", f"#!{in_path}/compiled-server\n")  # in the prefix, which is shown with it
    for name in ("plain-server", "compiled-server", "own-server"):
        found = plan(tmp_path, name)
        assert (found.command.script, found.program) == (name, None)


def test_a_python_of_the_path_that_is_a_shim_becomes_the_sidecars(tmp_path: Path, script: Path, in_path: Path) -> None:
    program(in_path / "python3.99", "#!/usr/bin/env nothing-of-the-kind\n")
    found = plan(tmp_path, "python3.99", str(script))
    assert (found.command.script, len(found.notes)) == ("python3", 1)


def test_a_value_of_an_option_is_a_path_as_an_argument_is(tmp_path: Path, script: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "home" / "notes").mkdir(parents=True)
    for options in (
        ("--a", "./data", "--b", "~/notes", "--c", "./project/settings.json", "--d", "project/settings.json"),
        ("--a=./data", "--b=~/notes", "--c=./project/settings.json", "--d=project/settings.json"),
    ):
        found = plan(tmp_path, "python3", str(script), *options)
        said = " ".join(found.command.arguments).replace("=", " ")
        names = (
            f"--a {tmp_path}/data",
            f"--b {tmp_path}/home/notes",
            "--c code/settings.json",
            "--d code/settings.json",
        )
        assert said == " ".join(("code/server.py", *names))
        assert [each.path for each in found.paths] == [tmp_path / "data", tmp_path / "home" / "notes"]
    found = plan(tmp_path, "python3", str(script), "--a=b=./data", "--empty=", "-", "--url=./", "a=./data")
    assert found.command.arguments[1:] == ("--a=b=./data", "--empty=", "-", f"--url={tmp_path}", "a=./data")


def test_a_configuration_that_an_option_names_in_the_code_is_refused(tmp_path: Path, script: Path) -> None:
    (script.parent / "mcp.json").write_text(json.dumps({"mcpServers": {}}))
    for arguments in (("--config=./project/mcp.json",), ("--config", "./project/mcp.json")):
        with pytest.raises(NotImportableError, match="copied into no plugin"):
            plan(tmp_path, "python3", str(script), *arguments)


def test_what_a_scripts_block_depends_on_is_locked_and_another_python_is_none_of_its_business(tmp_path: Path) -> None:
    make_wheel(tmp_path / "dist", "who", files={"who.py": PYTHON})
    script = tmp_path / "code" / "server.py"
    script.parent.mkdir()
    script.write_text('# /// script\n# dependencies = ["who"]\n# ///\nimport who\n\nwho.run()\n')
    python = program(tmp_path / "venv" / "bin" / "python3")
    table = {
        "uv": {"command": "uv", "args": ["run", str(script)]},
        "path": {"command": str(python), "args": [str(script)]},
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"servers": table}))
    done = fumehood(*IMPORT, folder=tmp_path, more=index_environment(tmp_path / "dist"))
    found = done.json["servers"]
    assert [each["status"] for each in found] == ["imported", "imported"], done.stdout
    assert all("1 package" in each["installs"] for each in found)
    assert "the sidecar's Python, not" in "".join(found[1]["notes"])
