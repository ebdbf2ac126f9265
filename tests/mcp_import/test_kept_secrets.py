"""An imported server gets the values that its configuration has for it, and none that is kept for somebody else."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from fumehood_server.cli.mcp_import.names import secret_name
from fumehood_server.cli.mcp_import.plugin_folder import marked

from tests.cli.command import fumehood, on_terminal
from tests.mcp_import import servers
from tests.mcp_import.own_server import IMPORT, import_servers, values, write_script, write_servers

OPERATORS = "operators-own-value-99"
DUMMY = "dummy-dummy-dummy-1"
OTHER = "another-value-222222"
TRACKER = {"tracker": {"TOKEN": DUMMY}}


def keep(path: Path, value: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(value)
    path.chmod(0o600)


def kept(folder: Path) -> dict[str, str]:
    return {each.name: each.read_text() for each in (folder / ".fumehood" / "secrets").glob("*")}


def problem(outcome: dict[str, Any]) -> tuple[str, str]:
    assert outcome["status"] == "refused", outcome
    return outcome["problem"]["code"], outcome["problem"]["message"]


@pytest.mark.parametrize("source", ['file = "op.token"', 'env = "OPERATORS_TOKEN"'])
def test_the_operators_own_is_not_handed_to_a_server_whose_variable_has_its_name(tmp_path: Path, source: str) -> None:
    keep(tmp_path / "op.token", OPERATORS)
    config = tmp_path / "fumehood.toml"
    config.write_text(f"[secrets.tracker-token]\n{source}\n")
    before = config.read_text()
    tracker, other = import_servers(tmp_path, {**TRACKER, "other": {"TOKEN": DUMMY}})
    assert problem(tracker) == ("secret", "[secrets.tracker-token] is there already, and is something else")
    assert other["status"] == "imported", other
    assert (values(tmp_path, "other"), kept(tmp_path)) == ({"TOKEN": DUMMY}, {"other-token": DUMMY})
    assert not (tmp_path / "mcp" / "tracker").exists()
    assert config.read_text().startswith(before)
    (planned,) = import_servers(tmp_path, TRACKER, "--dry-run")
    assert problem(planned)[0] == "secret"


def test_what_another_plugin_is_granted_is_not_granted_to_this_one(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "plugin.toml").write_text('[plugin]\nname = "theirs"\nversion = "1.0.0"\n')
    table = '[secrets.tracker-token]\nfile = ".fumehood/secrets/tracker-token"\n'
    keep(tmp_path / ".fumehood/secrets/tracker-token", DUMMY)
    config = tmp_path / "fumehood.toml"
    config.write_text(f'{table}[[plugin]]\npath = "theirs"\nsecrets = ["tracker-token"]\n')
    (found,) = import_servers(tmp_path, TRACKER)
    assert problem(found)[0] == "secret"
    assert f"is granted to {tmp_path / 'theirs'}" in problem(found)[1]
    config.write_text(table)
    (found,) = import_servers(tmp_path, TRACKER)
    assert (found["status"], values(tmp_path, "tracker")) == ("imported", {"TOKEN": DUMMY}), found


def test_a_file_with_another_value_is_not_granted(tmp_path: Path) -> None:
    file = tmp_path / ".fumehood/secrets/tracker-token"
    keep(file, OTHER)
    (found,) = import_servers(tmp_path, TRACKER)
    assert problem(found) == ("secret", f"{file} holds another value for TOKEN")
    inputs = [{"id": "token", "type": "promptString", "password": True}]
    write_servers(tmp_path, {"tracker": {"TOKEN": "${input:token}"}}, inputs=inputs)
    (found,) = fumehood(*IMPORT, "--from", "vscode", folder=tmp_path).json["servers"]
    assert problem(found) == ("secret", f"{file} is there already, and the value of TOKEN isn't known here")
    assert not (tmp_path / "fumehood.toml").exists()
    assert (kept(tmp_path), list(tmp_path.glob("mcp/*"))) == ({"tracker-token": OTHER}, [])
    keep(file, DUMMY)
    (found,) = import_servers(tmp_path, TRACKER)
    assert (found["status"], values(tmp_path, "tracker")) == ("imported", {"TOKEN": DUMMY}), found


def test_an_import_that_fails_leaves_no_value_and_the_next_one_has_the_right_value(tmp_path: Path) -> None:
    config = tmp_path / "fumehood.toml"
    config.write_text("plugin = []\n")  # which no [[plugin]] can be appended to
    (found,) = import_servers(tmp_path, {"tracker": {"TOKEN": OTHER}})
    assert found["status"] == "failed", found
    assert (kept(tmp_path), config.read_text(), list(tmp_path.glob("mcp/*"))) == ({}, "plugin = []\n", [])
    config.write_text("")
    (found,) = import_servers(tmp_path, TRACKER)
    assert (found["status"], values(tmp_path, "tracker")) == ("imported", {"TOKEN": DUMMY}), found


def test_another_value_of_a_server_that_is_imported_is_told_and_taken_if_somebody_says_so(tmp_path: Path) -> None:
    import_servers(tmp_path, TRACKER)
    (found,) = import_servers(tmp_path, {"tracker": {"TOKEN": OTHER}})
    assert (found["status"], values(tmp_path, "tracker")) == ("unchanged", {"TOKEN": DUMMY}), found
    assert any("tracker-token holds another value for TOKEN, which stays" in each for each in found["notes"])
    command = ("mcp", "import", "mcp.json")
    for answer, value in (("", DUMMY), ("y", OTHER)):
        status, text = on_terminal(*command, folder=tmp_path, typed=(("Replace it?", answer),))
        assert (status, values(tmp_path, "tracker")) == (0, {"TOKEN": value}), text
    assert [each.name for each in (tmp_path / ".fumehood/secrets").iterdir()] == ["tracker-token"]
    (found,) = import_servers(tmp_path, {"tracker": {"TOKEN": OTHER}})
    assert (found["status"], found["notes"]) == ("unchanged", found["notes"][:1]), found


def test_a_changed_server_with_another_value_is_not_handed_the_one_that_is_kept(tmp_path: Path) -> None:
    import_servers(tmp_path, TRACKER)
    changed = {"TOKEN": OTHER, "LEVEL": "low"}
    (found,) = import_servers(tmp_path, {"tracker": changed})
    assert problem(found)[0] == "secret"
    assert values(tmp_path, "tracker") == {"TOKEN": DUMMY}
    (found,) = import_servers(tmp_path, {"tracker": {**changed, "TOKEN": DUMMY}})
    assert (found["status"], values(tmp_path, "tracker")) == ("updated", {"TOKEN": DUMMY, "LEVEL": "low"}), found
    write_servers(tmp_path, {"tracker": {"TOKEN": OTHER}})
    typed = (("take these changes?", "y"), ("Replace it?", "y"))
    status, text = on_terminal("mcp", "import", "mcp.json", folder=tmp_path, typed=typed)
    assert (status, values(tmp_path, "tracker")) == (0, {"TOKEN": OTHER}), text


PASSWORD_INPUTS = [{"id": "token", "type": "promptString", "password": True}]
ASKED = {"TOKEN": "${input:token}", "LEVEL": "low"}


def import_asked(folder: Path, variables: dict[str, str], *more: str) -> dict[str, Any]:
    """What becomes of a server whose value its host asks for."""
    write_servers(folder, {"tracker": variables}, inputs=PASSWORD_INPUTS)
    (found,) = fumehood(*IMPORT, "--from", "vscode", *more, folder=folder).json["servers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("change", ["script", "variables"])
def test_a_changed_server_that_tells_no_value_is_not_handed_the_one_that_is_kept(tmp_path: Path, change: str) -> None:
    file = tmp_path / ".fumehood/secrets/tracker-token"
    assert import_asked(tmp_path, ASKED, "--input", f"token={DUMMY}")["status"] == "imported"
    assert import_asked(tmp_path, ASKED)["status"] == "unchanged"
    variables = ASKED if change == "script" else {**ASKED, "PYTHONPATH": "/srv"}
    manifest = (tmp_path / "mcp/tracker/plugin.toml").read_text()
    write_servers(tmp_path, {"tracker": variables}, inputs=PASSWORD_INPUTS)
    if change == "script":
        write_script(tmp_path, servers.PYTHON + "\n\nprint(end='')\nrun()\n")
    command = ("--from", "vscode")
    for mode in ("--yes", "--dry-run"):
        (found,) = fumehood("mcp", "import", "mcp.json", "--json", mode, *command, folder=tmp_path).json["servers"]
        assert problem(found) == (
            "secret",
            "the server has changed, and whether the value kept for TOKEN is its own isn't known",
        )
    assert (tmp_path / "mcp/tracker/plugin.toml").read_text() == manifest
    (found,) = fumehood(*IMPORT, *command, "--input", f"token={OTHER}", folder=tmp_path).json["servers"]
    assert problem(found)[1] == f"the server has changed, and {file} holds another value for TOKEN"
    (found,) = fumehood(*IMPORT, *command, "--input", f"token={DUMMY}", folder=tmp_path).json["servers"]
    assert (found["status"], values(tmp_path, "tracker")) == ("updated", {**variables, "TOKEN": DUMMY}), found


def name_as_earlier(folder: Path, plugin: str, new: str, old: str) -> None:
    """Have what an import wrote look as if an earlier version had."""
    manifest, config = folder / "mcp" / plugin / "plugin.toml", folder / "fumehood.toml"
    manifest.write_text(marked(manifest.read_text().partition("\n")[2].replace(new, old)))
    config.write_text(config.read_text().replace(new, old))
    secrets = folder / ".fumehood/secrets"
    if not (secrets / old).exists():
        os.rename(secrets / new, secrets / old)  # noqa: PTH104 - as with the others: names


def test_it_keeps_the_name_that_an_earlier_version_gave_it(tmp_path: Path) -> None:
    name = secret_name("the-server", "API_KEY")
    import_servers(tmp_path, {"the-server": {"API_KEY": DUMMY}})
    name_as_earlier(tmp_path, "the-server", name, "the-server-api-key")
    (found,) = import_servers(tmp_path, {"the-server": {"API_KEY": DUMMY}})
    assert (found["status"], found["todo"]) == ("unchanged", []), found
    (found,) = import_servers(tmp_path, {"the-server": {"API_KEY": DUMMY, "LEVEL": "low"}})
    assert (found["status"], found["todo"]) == ("updated", []), found
    assert values(tmp_path, "the-server") == {"API_KEY": DUMMY, "LEVEL": "low"}
    assert kept(tmp_path) == {"the-server-api-key": DUMMY}


def test_what_an_earlier_version_gave_to_two_is_taken_from_the_one_with_another_value(tmp_path: Path) -> None:
    servers = {"github": {"PERSONAL_ACCESS_TOKEN": OPERATORS}, "github-personal": {"ACCESS_TOKEN": DUMMY}}
    import_servers(tmp_path, servers)
    name = secret_name("github-personal", "ACCESS_TOKEN")
    name_as_earlier(tmp_path, "github-personal", name, "github-personal-access-token")
    config = tmp_path / "fumehood.toml"
    twice = '[secrets."github-personal-access-token"]\nfile = ".fumehood/secrets/github-personal-access-token"\n'
    head, _, rest = config.read_text().rpartition(twice)
    config.write_text(head + rest)
    assert values(tmp_path, "github-personal") == {"ACCESS_TOKEN": OPERATORS}
    github, personal = import_servers(tmp_path, servers)
    assert (github["status"], personal["status"]) == ("unchanged", "updated"), personal
    assert "ACCESS_TOKEN is not granted" in personal["todo"][0]
    assert values(tmp_path, "github") == servers["github"]
    environment = tomllib.loads((tmp_path / "mcp/github-personal/plugin.toml").read_text())["plugin"]
    assert "environment" not in environment or not environment["environment"]
