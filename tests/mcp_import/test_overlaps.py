"""A grant that fumehood.toml would be refused with is refused before anything is installed, as "overlap"."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fumehood_server.cli.mcp_import.asking import Narrowest, PathGrant
from fumehood_server.cli.mcp_import.host_configuration import read_host_configuration
from fumehood_server.cli.mcp_import.import_settings import Import
from fumehood_server.cli.mcp_import.outcome import Outcome
from fumehood_server.cli.mcp_import.places import NamedPath
from fumehood_server.cli.mcp_import.run import import_all, plan_all

from tests.mcp_import.own_server import write_script

WEBHOOK = """
[secrets.back]
file = ".fumehood/back"
[[caller]]
name = "desk"
approve = ["pay"]
[approvals.webhook]
listen = "unix:data/replies.sock"
reply_secret = "back"
caller = "desk"
"""
DATABASE = """
[journal]
store = "postgresql://fumehood@127.0.0.1/journal"
password = { file = "data/password" }
"""
GRAMMAR = """
[[engine]]
name = "local"
provider = "openai"
model = "any"
base_url = "http://127.0.0.1:8000/v1/"
constrains = ["grammar"]
grammar_dialect = "llama.cpp"
[orchestration]
engine = "local"
grammars = { answer = "data/answer.gbnf" }
"""
OTHER = """
[plugin]
name = "other"
version = "1.0.0"
kind = "executable"
command = ["true"]
"""


class Writing(Narrowest):
    """Somebody at a terminal who grants each path for writing."""

    asks = True

    def path(self, server: str, named: NamedPath, *, suggested: PathGrant) -> PathGrant:  # noqa: ARG002 - as the others
        return PathGrant.WRITE


def imported(folder: Path, config: str, granted: Path, asker: Narrowest, name: str = "fumehood.toml") -> Outcome:
    """What becomes of a server that names one folder. `config` empty: there is no fumehood.toml yet."""
    entry = {"command": "python3", "args": [str(write_script(folder)), str(granted)]}
    (folder / "mcp.json").write_text(json.dumps({"servers": {"notes": entry}}))
    path = folder / name
    if config:
        path.write_text(config)
    run = Import(config_path=path, into=folder / "mcp", host=None, asker=asker, quiet=True)
    planned = plan_all(read_host_configuration(folder / "mcp.json", host=None, workspace=None), asker)
    (found,) = import_all(planned, run)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a folder of what is the sidecar's and one of what is not."""
    for name in ("data", "notes"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    (tmp_path / "data" / "answer.gbnf").write_text('root ::= "yes" | "no"\n')
    (tmp_path / "data" / "password").touch(0o600)
    return tmp_path


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ('[server]\ntoken_file = "data/tokens.json"\n', "the secret tokens"),
        (WEBHOOK, "the sidecar's socket"),
        (DATABASE, "the secret journal.password"),
        (GRAMMAR, "the file of a grammar"),
    ],
    ids=["tokens", "replies", "password", "grammar"],
)
def test_folder_of_what_is_the_sidecars_is_not_granted_for_writing_and_another_is(
    folder: Path, config: str, what: str
) -> None:
    found = imported(folder, config, folder / "data", Writing())
    assert (found.status, found.code, what in found.reason) == ("refused", "overlap", True), found
    assert (folder / "fumehood.toml").read_text() == config
    assert not [name for name in ("mcp", ".fumehood", "fumehood.lock") if (folder / name).exists()]
    allowed = imported(folder, config, folder / "notes", Writing())
    assert (allowed.status, allowed.now and allowed.now["write"]) == ("imported", [str(folder / "notes")]), allowed


def test_folder_of_the_tokens_is_not_granted_for_reading_and_another_is(folder: Path) -> None:
    config = '[server]\ntoken_file = "data/tokens.json"\n'
    found = imported(folder, config, folder / "data", Narrowest())
    assert (found.status, found.code) == ("refused", "overlap"), found
    assert not (folder / "mcp").exists()
    allowed = imported(folder, config, folder / "notes", Narrowest())
    assert (allowed.status, allowed.now and allowed.now["read"]) == ("imported", [str(folder / "notes")]), allowed


def test_folder_of_the_link_to_a_configuration_that_isnt_there_yet_is_not_granted_and_another_is(folder: Path) -> None:
    (folder / "settings").mkdir()
    (folder / "data" / "link").symlink_to(folder / "settings")
    found = imported(folder, "", folder / "data", Writing(), "data/link/fumehood.toml")
    assert (found.status, found.code) == ("refused", "overlap"), found
    assert not (folder / "mcp").exists()
    allowed = imported(folder, "", folder / "notes", Writing(), "data/link/fumehood.toml")
    assert (allowed.status, (folder / "settings" / "fumehood.toml").exists()) == ("imported", True), allowed


@pytest.mark.parametrize("is_kept", [True, False], ids=["a link still", "a folder by now"])
def test_path_that_a_plugin_may_have_led_elsewhere_is_not_granted_and_what_it_leads_to_is(
    folder: Path, is_kept: bool
) -> None:
    link, private = folder / "notes" / "link", folder / "private"
    private.mkdir()
    link.symlink_to(private)
    (folder / "other").mkdir()
    (folder / "other" / "plugin.toml").write_text(OTHER)

    class Slow(Writing):
        """Before whose answer the plugin puts a folder in place of its link."""

        def path(self, server: str, named: NamedPath, *, suggested: PathGrant) -> PathGrant:
            if not is_kept and link.is_symlink():
                link.unlink()
                link.mkdir()
            return super().path(server, named, suggested=suggested)

    config = '[[plugin]]\npath = "other"\nwrite = ["notes"]\n'
    found = imported(folder, config, link, Narrowest() if is_kept else Slow())
    assert (found.status, found.code) == ("refused", "overlap"), found
    assert ("symlink" in found.reason, found.todo.startswith("Look who made the link")) == (is_kept, is_kept), found
    assert (folder / "fumehood.toml").read_text() == config
    allowed = imported(folder, config, private, Narrowest())
    assert (allowed.status, allowed.now and allowed.now["read"]) == ("imported", [str(private)]), allowed
