"""A granted secret without a value is written by the next import where it may be, and is never passed over."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from tests.cli.command import fumehood, on_terminal
from tests.mcp_import.own_server import IMPORT, values, write_servers

VALUE = "the-value-of-notes-1"
NOTES = {"notes": {"NOTES_TOKEN": VALUE}}
DECLINED = (("Import it?", "y"), ("NOTES_TOKEN?", ""))
LATER = {"inputs": [{"id": "token", "type": "promptString", "password": True}]}


def imported(folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    done = fumehood(*IMPORT, *more, folder=folder)
    (found,) = done.json["servers"]
    assert isinstance(found, dict)
    return done.status, found


@pytest.fixture
def declined(tmp_path: Path) -> Path:
    """The folder of a server whose secret was declined, and granted by hand since, as the import said."""
    write_servers(tmp_path, NOTES)
    status, text = on_terminal("mcp", "import", "mcp.json", folder=tmp_path, typed=DECLINED)
    assert status == 0, text
    config = tmp_path / "fumehood.toml"
    said = click.unstyle(text).replace("\r", "").partition('secrets = ["notes-notes-token"]\n')[2].splitlines()[:2]
    table = "\n".join(each.partition("#")[0].strip() for each in said)
    config.write_text(f'{config.read_text()}secrets = ["notes-notes-token"]\n{table}\n')
    assert tomllib.loads(config.read_text())["secrets"]["notes-notes-token"]["file"]
    return tmp_path


def file_of(folder: Path) -> Path:
    return folder / ".fumehood" / "secrets" / "notes-notes-token"


def test_what_a_declined_secrets_to_do_says_leads_to_a_server_that_has_it(declined: Path) -> None:
    status, found = imported(declined)
    assert (status, found["status"], found["todo"]) == (0, "updated", []), found
    assert any("holds the value of NOTES_TOKEN now" in each for each in found["notes"])
    assert values(declined, "notes") == {"NOTES_TOKEN": VALUE}
    assert file_of(declined).stat().st_mode & 0o777 == 0o600
    assert VALUE not in str(found)
    status, found = imported(declined)
    assert (status, found["status"]) == (0, "unchanged"), found


def test_a_value_that_is_gone_is_written_again_by_an_import_that_finds_nothing_else(declined: Path) -> None:
    imported(declined)
    file_of(declined).unlink()
    status, found = imported(declined, "--dry-run")
    assert (status, file_of(declined).exists()) == (0, False), found
    assert any("would be written" in each for each in found["notes"])
    status, found = imported(declined)
    assert (status, found["status"], file_of(declined).read_text()) == (0, "unchanged", VALUE), found


@pytest.mark.parametrize(("answer", "status"), [("y", 0), ("", 1)])
def test_somebody_at_a_terminal_is_asked(declined: Path, answer: str, status: int) -> None:
    typed = (("take these changes?", "y"), ("may it have the secret in NOTES_TOKEN?", answer))
    ended, text = on_terminal("mcp", "import", "mcp.json", folder=declined, typed=typed)
    assert (ended, file_of(declined).exists()) == (status, status == 0), text
    assert ("put the value of NOTES_TOKEN into" in text) == (status == 1), text


def test_for_a_value_that_is_not_known_nothing_but_the_value_is_asked(declined: Path) -> None:
    write_servers(declined, {"notes": {"NOTES_TOKEN": "${input:token}"}}, **LATER)
    typed = (("take these changes?", "y"), ("Value of NOTES_TOKEN", VALUE))
    status, text = on_terminal("mcp", "import", "mcp.json", "--from", "vscode", folder=declined, typed=typed)
    assert (status, file_of(declined).read_text(), "may it have the secret" in text) == (0, VALUE, False), text


def test_without_a_value_it_is_unfinished_each_time_until_there_is_one(declined: Path) -> None:
    write_servers(declined, {"notes": {"NOTES_TOKEN": "${input:token}"}}, **LATER)
    for _ in range(2):
        status, found = imported(declined, "--from", "vscode")
        assert (status, found["status"]) == (1, "unfinished"), found
        assert found["todo"][0].startswith(f"put the value of NOTES_TOKEN into {file_of(declined)} (mode 0600)"), found
    file_of(declined).write_text(VALUE)
    file_of(declined).chmod(0o600)
    status, found = imported(declined, "--from", "vscode")
    assert (status, found["status"], found["todo"]) == (0, "unchanged", []), found


@pytest.mark.parametrize(
    "more",
    [
        '[[plugin]]\npath = "theirs"\nsecrets = ["notes-notes-token"]\n',
        '[secrets.other]\nfile = ".fumehood/secrets/notes-notes-token"\n',
    ],
    ids=["plugin", "secret"],
)
def test_a_value_that_another_would_have_as_well_is_not_written(declined: Path, more: str) -> None:
    (declined / "theirs").mkdir()
    (declined / "theirs" / "plugin.toml").write_text('[plugin]\nname = "theirs"\nversion = "1.0.0"\n')
    config = declined / "fumehood.toml"
    config.write_text(config.read_text() + more)
    status, found = imported(declined)
    assert (status, found["status"], file_of(declined).exists()) == (1, "unfinished", False), found


def test_a_file_elsewhere_is_left_to_be_written(declined: Path) -> None:
    config = declined / "fumehood.toml"
    config.write_text(config.read_text().replace(str(file_of(declined)), str(declined / "mine")))
    status, found = imported(declined)
    assert (status, found["status"], (declined / "mine").exists()) == (1, "unfinished", False), found
    assert f"into {declined / 'mine'} (mode 0600)" in found["todo"][0]
