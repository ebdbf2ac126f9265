"""`fumehood token`, what commands show of who calls, and what doctor says of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from fumehood_server.cli.doctor_callers import caller_findings
from fumehood_server.config.load import load_config

from tests.cli.command import fumehood
from tests.sidecar import Sidecar, running_sidecar

from .support import Pair, certified, token_of, write_pair
from .test_tls import TLS

CALLERS = '[[caller]]\nname = "agent"\ntools = ["say"]\n[[caller]]\nname = "boss"\ntools = ["*"]\noperator = true\n'
TOKEN = re.compile(r"fh_[0-9][0-9a-f]{7}_[0-9a-f]{64}")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def authority(files: Path) -> trustme.CA:
    made = trustme.CA()
    write_pair(files, certified(made, "127.0.0.1"))
    (files / "ca.pem").write_bytes(made.cert_pem.bytes())
    return made


@pytest.fixture(scope="module")
def served(plugin_folder: Path, files: Path, authority: trustme.CA) -> Iterator[Sidecar]:
    del authority
    with running_sidecar(
        [plugin_folder], server='listen = ["unix:s", "127.0.0.1:0"]', more=TLS.format(files) + CALLERS
    ) as sidecar:
        yield sidecar


def test_a_token_is_shown_once_taken_by_the_sidecar_that_runs_and_refused_once_revoked(
    served: Sidecar, files: Path, tmp_path: Path
) -> None:
    added = fumehood("token", "add", "agent", "--expires", "1d", folder=served.folder)
    assert (added.status, TOKEN.fullmatch(added.stdout.strip()) is not None) == (0, True), added
    assert "It is shown this once." in added.stderr
    (tmp_path / "token").write_text(added.stdout)
    shown = {"FUMEHOOD_TOKEN": f"@{tmp_path / 'token'}", "FUMEHOOD_TLS_CA": str(files / "ca.pem")}
    listed = fumehood("tools", "--json", address=served.targets[1], more=shown)
    assert [each["name"] for each in listed.json["tools"]] == ["say"]
    denied = fumehood("plugin", "list", "--json", address=served.targets[1], more=shown)
    assert (denied.status, denied.error["code"]) == (2, "CALLER_DENIED")
    (row,) = fumehood("token", "list", "--json", folder=served.folder).json["tokens"]
    assert (row["caller"], row["state"], row["id"] in added.stdout) == ("agent", "valid", True)
    revoked = fumehood("token", "revoke", row["id"], "--json", folder=served.folder)
    assert revoked.json["revoked"] == [{"id": row["id"], "caller": "agent"}]
    refused = fumehood("tools", "--json", address=served.targets[1], more=shown)
    assert (refused.status, refused.error["code"]) == (2, "UNAUTHENTICATED")
    assert refused.error["details"]["problem"] == "token_unknown"
    assert fumehood("token", "revoke", row["id"], folder=served.folder).status == 2


def test_all_tokens_of_a_caller_are_revoked_by_its_name(served: Sidecar) -> None:
    for caller in ("agent", "agent", "boss"):
        token_of(served.folder, caller)
    assert len(fumehood("token", "revoke", "agent", "--json", folder=served.folder).json["revoked"]) == 2
    assert {each["caller"] for each in fumehood("token", "list", "--json", folder=served.folder).json["tokens"]} == {
        "boss"
    }
    fumehood("token", "revoke", "boss", folder=served.folder)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("add", "nobody"), "NOT_FOUND", 'names no caller "nobody"'),
        (("add", "agent", "--expires", "soon"), "USAGE", '"soon" is no age'),
        (("add", "agent", "--expires", "0d"), "USAGE", '"0d" is no age'),
        (("revoke", "nobody"), "NOT_FOUND", 'no token "nobody"'),
    ],
)
def test_a_wrong_command_changes_nothing(served: Sidecar, words: tuple[str, ...], code: str, said: str) -> None:
    done = fumehood("token", *words, "--json", folder=served.folder)
    assert (done.status, done.error["code"]) == (2, code)
    assert said in done.error["message"]
    assert fumehood("token", "list", "--json", folder=served.folder).json == {"tokens": []}


def test_commands_read_what_they_show_from_the_file_of_their_folder(
    served: Sidecar, files: Path, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(token_of(served.folder, "boss") + "\n")
    client = f'[client]\ntoken_file = "token"\ntls_ca = "{files}/ca.pem"\n'
    (tmp_path / "fumehood.toml").write_text(client)
    assert fumehood("plugin", "list", "--json", address=served.targets[1], folder=tmp_path).status == 0
    (tmp_path / "fumehood.toml").write_text("")
    wrong = fumehood("plugin", "list", "--json", address=served.targets[1], folder=tmp_path)
    assert (wrong.status, wrong.error["code"]) == (3, "UNREACHABLE")
    fumehood("token", "revoke", "boss", folder=served.folder)


def test_completion_shows_the_token_and_names_what_the_caller_may_list(served: Sidecar, files: Path) -> None:
    shown = {"FUMEHOOD_TLS_CA": str(files / "ca.pem"), "FUMEHOOD_TOKEN": token_of(served.folder, "agent")}
    words = {"_FUMEHOOD_COMPLETE": "bash_complete", "COMP_WORDS": "fumehood call s", "COMP_CWORD": "2"}
    assert fumehood(address=served.targets[1], more={**shown, **words}).stdout.splitlines() == ["plain,say"]
    assert fumehood(address=served.targets[1], more=words).stdout.strip() == ""
    fumehood("token", "revoke", "agent", folder=served.folder)


def test_a_token_does_not_leave_the_machine_in_plain_text() -> None:
    done = fumehood("tools", "--json", "--token", "fh_0", "--address", "192.0.2.1:7430")
    assert (done.status, done.error["message"].startswith("a token must not be sent to 192.0.2.1:7430")) == (2, True)
    done = fumehood("tools", "--json", "--cert", "x", "--address", "127.0.0.1:1")
    assert done.error["message"] == "a certificate and its key go together"


def test_serve_says_what_to_write_where_nobody_is_named(tmp_path: Path) -> None:
    done = fumehood("serve", "--listen", "127.0.0.1:0", folder=tmp_path)
    assert done.status == 2
    assert "any user of this machine can reach" in done.stderr
    assert "--allow-anonymous" in done.stderr


def test_serve_refuses_a_key_that_others_may_read(tmp_path: Path) -> None:
    write_pair(tmp_path, certified(trustme.CA(), "127.0.0.1"))
    (tmp_path / "key.pem").chmod(0o644)
    text = '[server]\nlisten = ["unix:s", "127.0.0.1:0"]\n' + TLS.format(".") + CALLERS
    (tmp_path / "fumehood.toml").write_text(text)
    done = fumehood("serve", folder=tmp_path)
    assert (done.status, "others may use" in done.stderr, "chmod 600" in done.stderr) == (2, True, True)


def test_doctor_tells_of_certificates_tokens_and_callers_that_nobody_can_be(tmp_path: Path) -> None:
    authority, now = trustme.CA(), datetime.now(UTC)

    def found(days: float) -> list[tuple[str, str, str]]:
        made = authority.issue_cert("a.example", not_before=now - timedelta(days=9), not_after=now + timedelta(days))
        write_pair(tmp_path, Pair(made.cert_chain_pems[0].bytes(), made.private_key_pem.bytes()))
        return [(each.feature, each.status, each.detail) for each in caller_findings(load_config(path))]

    path = tmp_path / "fumehood.toml"
    path.write_text('[server]\nlisten = ["unix:s"]\n' + TLS.format(".") + CALLERS)
    token_of(tmp_path, "agent")
    token_of(tmp_path, "agent", 0)
    token_of(tmp_path, "gone")
    tls, tokens, *rest = found(60)
    assert (tls[:2], tokens[:2]) == (("tls", "ok"), ("tokens", "ok"))
    assert "1 of 3 hold" in tokens[2]
    assert [each[1:] for each in rest] == [
        ("note", "of agent: has expired"),
        ("note", "of gone: is of a caller that fumehood.toml does not name"),
        ("note", "has no token that holds, no certificate and no address, so that nobody can be it"),
    ]
    assert ("expires on" in found(5)[0][2], found(5)[0][1]) == (True, "note")
    assert ("has expired" in found(-1)[0][2], found(-1)[0][1]) == (True, "missing")
    (tmp_path / "key.pem").chmod(0o644)
    assert next(caller_findings(load_config(path))).status == "missing"


def test_who_comes_by_an_address_that_a_caller_names_is_that_caller(plugin_folder: Path) -> None:
    server = 'listen = ["unix:mine", "unix:theirs", "127.0.0.1:0"]\nallow_anonymous = true'
    agent = '[[caller]]\nname = "agent"\ntools = ["say"]\nlisten = "unix:theirs"\n'
    local = '[[caller]]\nname = "local"\ntools = ["wait"]\nlisten = "127.0.0.1:0"\n'
    with running_sidecar([plugin_folder], server=server, more=agent + local) as sidecar:
        seen: list[Any] = []
        for target in sidecar.targets:
            listed = fumehood("tools", "--json", address=target)
            seen.append([each["name"] for each in listed.json["tools"]])
        assert seen == [["say", "secret_report", "wait"], ["say"], ["wait"]]
        assert [fumehood("plugin", "list", "--json", address=each).status for each in sidecar.targets] == [0, 2, 2]
        called = fumehood("call", "say", "text=x", "--call-id", "named", address=sidecar.targets[1])
        assert called.status == 0, called
        shown = fumehood("journal", "show", "named", "--json", folder=sidecar.folder)
        assert '"unix_socket"' in json.dumps(shown.json)
