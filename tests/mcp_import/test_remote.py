"""Servers over HTTP are imported with their grants first, pinned and called; what fails leaves nothing behind."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from fumehood_server.cli.mcp_import import content
from fumehood_server.cli.mcp_import.asking import Narrowest
from fumehood_server.cli.mcp_import.host_configuration import read_host_configuration
from fumehood_server.cli.mcp_import.import_settings import Import
from fumehood_server.cli.mcp_import.places import NamedHost
from fumehood_server.cli.mcp_import.run import import_all, plan_all

from tests.cli.command import Done, fumehood
from tests.mcp.support import Caller
from tests.mcp.test_remote import TOKEN, remote_server
from tests.sidecar import running_sidecar


class Agreeing(Narrowest):
    """Somebody who says yes to everything."""

    def host(self, server: str, named: NamedHost) -> bool:  # noqa: ARG002 - as the others take it
        return True


def imported(folder: Path, table: dict[str, Any], *more: str, inputs: Any = None, variables: Any = None) -> Done:
    document = {"servers": {"far": table}, "inputs": inputs or []}
    (folder / "mcp.json").write_text(json.dumps(document))
    (folder / "fumehood.toml").touch()
    return fumehood("mcp", "import", "mcp.json", "--yes", "--json", *more, folder=folder, more=variables)


def outcome(done: Done) -> dict[str, Any]:
    (found,) = done.json["servers"]
    assert isinstance(found, dict)
    return found


def left(folder: Path) -> list[str]:
    """What an import has left behind, beside what it began with."""
    assert (folder / "fumehood.toml").read_text() == ""
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*secret*/*")) + [
        each.name for each in (folder / "mcp").glob("*")
    ]


async def test_server_with_a_token_is_granted_listed_pinned_and_called(tmp_path: Path) -> None:
    with remote_server(f"token={TOKEN}") as port:
        headers = {"Authorization": f"Bearer {TOKEN}", "X-Tenant": "acme"}
        done = imported(tmp_path, {"type": "http", "url": f"http://localhost:{port}/mcp", "headers": headers})
        found = outcome(done)
        assert (done.status, found["status"]) == (0, "imported"), done.stdout + done.stderr
        assert TOKEN not in done.stdout + done.stderr
        assert found["before"] == "it runs elsewhere, and sees what it is sent"
        assert found["now"]["hosts"] == [f"127.0.0.1:{port}"]
        assert found["now"]["max_side_effects"] == "external"
        assert {each["side_effects"] for each in found["tools"]} == {"external"}
        assert "localhost is written as 127.0.0.1" in found["notes"]

        plugin = tomllib.loads((tmp_path / "mcp/far/plugin.toml").read_text())["plugin"]
        assert plugin["url"] == f"http://127.0.0.1:{port}/mcp"
        assert plugin["headers"] == {
            "X-Tenant": "acme",
            "Authorization": {"secret": "far-authorization", "prefix": "Bearer "},
        }
        (secret,) = (tmp_path / ".fumehood/secrets").iterdir()
        assert (secret.read_text(), secret.stat().st_mode & 0o777) == (TOKEN, 0o600)
        config = (tmp_path / "fumehood.toml").read_text()
        again = outcome(imported_again(tmp_path))
        assert again["status"] == "unchanged"
        assert (tmp_path / "fumehood.toml").read_text() == config

        allowed = '[plugin.tools.seen]\npermission = "allow"\n'
        entry = tomllib.loads(config)["plugin"][0]
        grants = "\n".join(f"{key} = {json.dumps(entry[key])}" for key in entry if key != "path")
        more = f'[secrets.far-authorization]\nfile = "{secret}"\n'
        with running_sidecar([(tmp_path / "mcp/far", f"{grants}\n{allowed}")], more=more) as sidecar:
            async with sidecar.channel() as channel:
                assert await Caller(channel).text("seen", name="x-tenant") == "acme"


def imported_again(folder: Path) -> Done:
    return fumehood("mcp", "import", "mcp.json", "--yes", "--json", folder=folder)


def test_token_of_a_variable_stays_there(tmp_path: Path) -> None:
    table = {"url": "", "headers": {"Authorization": "Bearer ${env:FAR_TOKEN}"}}
    with remote_server(f"token={TOKEN}") as port:
        table["url"] = f"http://127.0.0.1:{port}/mcp"
        done = imported(tmp_path, table, variables={"FAR_TOKEN": TOKEN})
    assert outcome(done)["status"] == "imported", done.stdout
    config = tomllib.loads((tmp_path / "fumehood.toml").read_text())
    assert config["secrets"] == {"far-authorization": {"env": "FAR_TOKEN"}}
    assert TOKEN not in "".join(each.read_text() for each in (tmp_path / "mcp").rglob("*.toml"))


@pytest.mark.parametrize(
    ("given", "todo"),
    [("", "name a token in its `headers`"), ("wrong-token-value", "doesn't take the secret that it is shown")],
)
def test_server_that_refuses_leaves_nothing_behind(tmp_path: Path, given: str, todo: str) -> None:
    with remote_server(f"token={TOKEN}") as port:
        headers = {"Authorization": f"Bearer {given}"} if given else {}
        done = imported(tmp_path, {"url": f"http://127.0.0.1:{port}/mcp", "headers": headers})
    found = outcome(done)
    assert (done.status, found["status"], found["problem"]["code"]) == (1, "refused", "not_reached")
    assert "401" in found["problem"]["message"]
    assert todo in found["problem"]["todo"]
    assert left(tmp_path) == []


def test_secret_of_another_server_is_not_shown_to_this_one(tmp_path: Path) -> None:
    kept = tmp_path / ".fumehood/secrets/far-authorization"
    with remote_server(f"token={TOKEN}") as port:
        table = {"url": f"http://127.0.0.1:{port}/mcp", "headers": {"Authorization": "Bearer another-value"}}
        kept.parent.mkdir(parents=True, mode=0o700)
        kept.write_text(TOKEN)
        kept.chmod(0o600)
        found = outcome(imported(tmp_path, table))
        assert (found["status"], found["problem"]["code"]) == ("refused", "secret")
        assert f"{kept} holds another value" in found["problem"]["message"]
        assert (kept.read_text(), (tmp_path / "fumehood.toml").read_text()) == (TOKEN, "")
        kept.unlink()
        (tmp_path / "fumehood.toml").write_text('[secrets.far-authorization]\nenv = "ELSEWHERE"\n')
        command = ("mcp", "import", "mcp.json", "--yes", "--json")
        found = outcome(fumehood(*command, folder=tmp_path, more={"ELSEWHERE": TOKEN}))
        assert found["problem"]["message"] == "[secrets.far-authorization] is there already, and is something else"
        (tmp_path / "fumehood.toml").write_text("")
        table["headers"] = {"Authorization": f"Bearer {TOKEN}"}
        assert outcome(imported(tmp_path, table))["status"] == "imported"


@pytest.mark.parametrize(
    ("headers", "secrets"),
    [
        ({"X-Upstream": "Bearer abcd1234efgh"}, ["far-x-upstream"]),
        ({"X-Upstream": "basic dXNlcjpwYXNz"}, ["far-x-upstream"]),
        ({"X-Password": "correct horse battery"}, ["far-x-password"]),
        ({"X-Greeting": "good morning all"}, []),
    ],
)
def test_tokens_are_found_behind_their_scheme_and_kept_whole(
    tmp_path: Path, headers: dict[str, str], secrets: list[str]
) -> None:
    found = outcome(imported(tmp_path, {"url": "https://mcp.example.com/mcp", "headers": headers}, "--dry-run"))
    assert (found["status"], found["now"]["secrets"]) == ("planned", secrets)
    done = imported(tmp_path, {"url": "http://mcp.example.com/mcp", "headers": headers}, "--dry-run")
    if secrets:
        assert outcome(done)["problem"]["code"] == "insecure_url"
    else:
        assert outcome(done)["status"] == "planned"


def test_two_fields_are_not_kept_as_one_secret(tmp_path: Path) -> None:
    table = {"url": "https://mcp.example.com/mcp", "headers": {"X-Api-Key": "value-one", "x-api-key": "value-two"}}
    found = outcome(imported(tmp_path, table, "--dry-run"))
    assert found["problem"]["message"] == "two header fields would be kept as one secret, far-x-api-key"
    table["headers"] = {"X-Api-Key": "value-one", "X_Api_Key": "value-two"}
    found = outcome(imported(tmp_path, table, "--dry-run"))
    assert (found["status"], len(set(found["now"]["secrets"]))) == ("planned", 2)


def test_server_that_is_not_there_leaves_nothing_behind(tmp_path: Path) -> None:
    found = outcome(imported(tmp_path, {"url": "http://127.0.0.1:9/mcp"}))
    assert (found["status"], found["problem"]["code"]) == ("refused", "not_reached")
    assert left(tmp_path) == []


def test_url_that_lets_in_whoever_has_it_is_written_where_that_is_said(tmp_path: Path) -> None:
    table = {"url": "https://mcp.example.com/s/6f1f2f0e-8a54-4e5b-9d2c-0a1b2c3d4e5f/mcp"}
    found = outcome(imported(tmp_path, table, "--dry-run"))
    assert (found["problem"]["code"], "--plain url" in found["problem"]["todo"]) == ("secret_in_url", True)
    assert outcome(imported(tmp_path, table, "--dry-run", "--plain", "url"))["status"] == "planned"


@pytest.mark.parametrize(("asker", "code"), [(Narrowest(), "host_not_granted"), (Agreeing(), "not_reached")])
def test_name_that_leads_into_a_network_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asker: Narrowest, code: str
) -> None:
    monkeypatch.setattr(content, "private_addresses", lambda name: (f"{name}=127.0.0.1",))
    (tmp_path / "mcp.json").write_text(json.dumps({"servers": {"far": {"url": "http://far.invalid:9/mcp"}}}))
    (tmp_path / "fumehood.toml").touch()
    run = Import(config_path=tmp_path / "fumehood.toml", into=None, host=None, asker=asker, quiet=True)
    planned = plan_all(read_host_configuration(tmp_path / "mcp.json", host=None, workspace=None), asker)
    (found,) = import_all(planned, run)
    assert found.code == code
    if code == "host_not_granted":
        assert "leads to far.invalid=127.0.0.1, which is not public" in found.reason
    assert left(tmp_path) == []


def test_password_that_nobody_gives_is_asked_for_by_name(tmp_path: Path) -> None:
    inputs = [{"id": "token", "type": "promptString", "password": True}]
    with remote_server(f"token={TOKEN}") as port:
        table = {"url": f"http://127.0.0.1:{port}/mcp", "headers": {"Authorization": "Bearer ${input:token}"}}
        found = outcome(imported(tmp_path, table, inputs=inputs))
        assert found["problem"]["code"] == "secret"
        assert "--input" in found["problem"]["todo"]
        assert left(tmp_path) == []
        done = imported(tmp_path, table, f"--input=token={TOKEN}", inputs=inputs)
    assert outcome(done)["status"] == "imported", done.stdout


def test_dry_run_says_what_it_would_be_granted(tmp_path: Path) -> None:
    table = {"url": "https://mcp.example.com/mcp", "headers": {"Authorization": "Bearer ${env:FAR_TOKEN}"}}
    found = outcome(imported(tmp_path, table, "--dry-run"))
    assert found["status"] == "planned"
    assert (found["now"]["hosts"], found["now"]["secrets"]) == (["mcp.example.com:443"], ["far-authorization"])
    assert left(tmp_path) == []
