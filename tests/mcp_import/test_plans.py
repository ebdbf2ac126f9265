"""What is planned of a server: its secrets set apart, the places that it names found, its code seen to."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from fumehood_server.cli.mcp_import.host_configuration import Host, read_host_configuration
from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.mcp_import.places import PlaceProblem
from fumehood_server.cli.mcp_import.plan import ServerPlan, plan_server
from fumehood_server.cli.mcp_import.variables import Scope

HOME = Path("/home/ada")


def plan(tmp_path: Path, table: dict[str, Any], plain: tuple[str, ...] = (), **scope: Any) -> ServerPlan:
    inputs = scope.pop("table_of_inputs", [])
    path = tmp_path / ".vscode" / "mcp.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"servers": {"the server": table}, "inputs": inputs}))
    found = read_host_configuration(path)
    options = {"environment": {}, "home": HOME, "workspace": found.workspace, "inputs": found.inputs, **scope}
    return plan_server(found.servers[0], Scope(host=Host.VSCODE, **options), plain=plain)


def npx(*arguments: str, **more: Any) -> dict[str, Any]:
    return {"command": "npx", "args": ["-y", "pkg", *arguments], **more}


def test_secrets_are_set_apart_from_variables(tmp_path: Path) -> None:
    environment = {
        "GITHUB_TOKEN": "ghp_0123456789abcdef",
        "FROM_HERE_TOKEN": "${env:SOME_TOKEN}",
        "ASKED": "${input:key}",
        "COMPOSED": "Bearer ${input:given}",
        "LOG_LEVEL": "info",
        "PATH": "/usr/bin",
    }
    inputs = [{"id": name, "type": "promptString", "password": True} for name in ("key", "given")]
    found = plan(tmp_path, npx(env=environment), table_of_inputs=inputs, given={"given": "0123456789"})
    assert found.environment == {"LOG_LEVEL": "info"}
    assert {each.variable: (each.value, each.environment) for each in found.secrets} == {
        "GITHUB_TOKEN": ("ghp_0123456789abcdef", ""),
        "FROM_HERE_TOKEN": (None, "SOME_TOKEN"),
        "ASKED": (None, ""),
        "COMPOSED": ("Bearer 0123456789", ""),
    }
    assert found.secrets[0].name.startswith("the-server-github-token.")
    assert "ghp_" not in repr(found.secrets)
    assert any("PATH is not taken over" in note for note in found.notes)


def test_a_variable_that_is_no_secret_can_be_said_to_be_none(tmp_path: Path) -> None:
    found = plan(tmp_path, npx(env={"SESSION_KEY": "short"}), plain=("SESSION_KEY",))
    assert (found.environment, found.secrets) == ({"SESSION_KEY": "short"}, ())
    found = plan(tmp_path, npx(env={"SESSION_KEY": "short"}))
    assert any("fewer than 8 bytes" in note for note in found.notes)


def test_variables_of_an_environment_file_come_before_those_of_env(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text('# x\nexport A="one # two" # three\nB=file # no\nAPI_KEY=0123456789\n\nnonsense\n')
    found = plan(tmp_path, npx(envFile="${workspaceFolder}/.env", env={"B": "env"}))
    assert found.environment == {"A": "one # two", "B": "env"}
    assert [(each.variable, each.value) for each in found.secrets] == [("API_KEY", "0123456789")]
    (tmp_path / ".env").unlink()
    with pytest.raises(NotImportableError, match="not there"):
        plan(tmp_path, npx(envFile="${workspaceFolder}/.env"))


def test_paths_and_hosts_are_found_and_relative_ones_made_absolute(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "notes.json").write_text("{}")
    table = npx(
        "./data", f"--file={tmp_path}/notes.json", "/usr/share", "/not/there", "https://api.example.com/v1",
        "http://localhost:8080", "postgresql://db.example.com/x",
        env={"SECOND": "https://api.example.com:8443", "FOLDER": str(tmp_path / "data")},
    )  # fmt: skip
    found = plan(tmp_path, table)
    assert found.command.arguments[0] == str(tmp_path / "data")
    assert [(each.path.name, each.is_folder, each.where) for each in found.paths] == [
        ("data", True, "argument 1"),
        ("notes.json", False, "argument 2"),
    ]
    assert [each.host for each in found.hosts] == ["api.example.com:443", "api.example.com:8443"]
    notes = "\n".join(each.text for each in found.refused_places)
    for said in ("/not/there, argument 4, is not there", "allow_private", "postgresql://db.example.com"):
        assert said in notes


def test_a_home_or_what_holds_it_is_not_granted_of_itself(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "notes").mkdir(parents=True)
    found = plan(tmp_path, npx("~", str(tmp_path), "~/notes"), home=home)
    assert [each.path for each in found.paths] == [home / "notes"]
    assert [each.problem for each in found.refused_places] == [PlaceProblem.HOME] * 2


def test_a_hosts_own_sandbox_suggests_grants(tmp_path: Path) -> None:
    sandbox = {
        "filesystem": {"allowWrite": ["${workspaceFolder}"]},
        "network": {"allowedDomains": ["api.example.com", "*.example.com"]},
    }
    found = plan(tmp_path, npx("${workspaceFolder}", sandboxEnabled=True, sandbox=sandbox))
    assert (found.write, [each.host for each in found.hosts]) == ((tmp_path,), ["api.example.com:443"])


def test_an_interpreters_project_and_a_program_are_copied(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "dist").mkdir(parents=True)
    (project / "package.json").write_text("{}")
    script = project / "dist" / "index.js"
    script.write_text("")
    python = Path(sys.executable).resolve()  # an ELF file by another name
    program = tmp_path / "my-server"
    shutil.copyfile(python, program)
    program.chmod(0o755)
    found = plan(tmp_path, {"command": "cat", "args": [str(script)]})
    assert (found.command.script, found.code, [each.path for each in found.paths]) == ("cat", None, [script])
    found = plan(tmp_path, {"command": "python3", "args": ["project/dist/index.js"], "cwd": "${workspaceFolder}"})
    assert (found.code, found.command.arguments, found.paths) == (project, ("code/dist/index.js",), ())
    found = plan(tmp_path, {"command": str(program), "args": ["stdio"]})
    assert (found.program, found.command.script, found.command.arguments) == (program, "./bin/my-server", ("stdio",))


@pytest.mark.parametrize(
    ("table", "code"),
    [
        ({"type": "sse", "url": "https://x/mcp"}, "transport"),
        ({"url": "https://x/mcp?api_key=0123456789abc"}, "secret_in_url"),
        ({"url": "https://x/s/NTY3ODkwMTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMg/mcp"}, "secret_in_url"),
        ({"url": "https://x/6f1f2f0e-8a54-4e5b-9d2c-0a1b2c3d4e5f"}, "secret_in_url"),
        ({"url": "https://x/mcp?to=NTY3ODkwMTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMg"}, "secret_in_url"),
        ({"url": "https://${env:NOT_SET}/mcp"}, "variable"),
        ({"url": "ftp://x/mcp"}, "malformed"),
        ({"url": "http://x.example/mcp", "headers": {"Authorization": "Bearer 0123456789abc"}}, "insecure_url"),
        ({"url": "https://x/mcp", "headers": {"Host": "y"}}, "malformed"),
        ({"url": "https://x/mcp", "headers": {"X-Tenant": "${input:key2}"}}, "variable"),
        ({"url": "https://x/mcp", "headers": 3}, "malformed"),
        (npx("--api-key", "0123456789"), "secret_in_arguments"),
        (npx("${input:key}"), "input"),
        (npx("postgresql://ada:secret@db/x"), "secret_in_arguments"),
        (npx("${env:NOT_SET}"), "variable"),
        (npx("${command:pick}"), "variable"),
        (npx(env={"A B": "x"}), "malformed"),
        ({"command": "no-such-program"}, "program"),
        ({"command": "/no/such/program"}, "program"),
        ({"command": "python3", "args": ["-c", "print()"]}, "program"),
        ({"command": __file__}, "program"),
        (3, "malformed"),
    ],
)
def test_what_cant_be_imported_says_why_and_what_to_do(tmp_path: Path, table: Any, code: str) -> None:
    inputs = [{"id": "key", "type": "promptString", "password": True}]
    with pytest.raises(NotImportableError) as caught:
        plan(tmp_path, table, table_of_inputs=inputs)
    assert (caught.value.code, bool(caught.value.todo)) == (code, True)


def test_a_password_given_for_an_argument_is_refused_too(tmp_path: Path) -> None:
    inputs = [{"id": "key", "type": "promptString", "password": True}]
    with pytest.raises(NotImportableError) as caught:
        plan(tmp_path, npx("${input:key}"), table_of_inputs=inputs, given={"key": "hunter2hunter2"})
    assert caught.value.code == "secret_in_arguments"
    assert "hunter2" not in caught.value.reason


def test_where_a_relative_path_starts_must_be_known(tmp_path: Path) -> None:
    with pytest.raises(NotImportableError) as caught:
        plan(tmp_path, npx("./data"), workspace=None)
    assert (caught.value.code, "--workspace" in caught.value.todo) == ("relative_path", True)
