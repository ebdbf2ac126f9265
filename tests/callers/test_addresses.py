"""Which addresses a sidecar may listen on, and what `[[caller]]` and `[server.tls]` are refused for."""

from __future__ import annotations

from pathlib import Path

import pytest
from fumehood_server.config.load import load_config
from fumehood_server.errors import ConfigError

LOOPBACK = '[server]\nlisten = ["unix:s", "127.0.0.1:0"]\n'
PUBLIC = '[server]\nlisten = ["0.0.0.0:7443"]\n'
TLS = '[server.tls]\ncertificate = "c"\nkey = "k"\n'
MUTUAL = TLS + 'client_ca = "a"\n'
CALLER = '[[caller]]\nname = "a"\n'


def load(folder: Path, text: str) -> None:
    (folder / "fumehood.toml").write_text(text)
    load_config(folder / "fumehood.toml")


@pytest.mark.parametrize("text", [
    '[server]\nlisten = ["unix:s"]\n',
    LOOPBACK + "allow_anonymous = true\n",
    LOOPBACK + CALLER,
    LOOPBACK + TLS + CALLER,
    PUBLIC + TLS + CALLER,
    PUBLIC + MUTUAL + CALLER + 'certificate = "b"\n',
    LOOPBACK + "allow_anonymous = true\n" + CALLER + 'listen = "127.0.0.1:0"\n',
    LOOPBACK + CALLER + 'listen = "unix:s"\n' + CALLER.replace('"a"', '"b"') + 'tools = ["*", "a_*b"]\n',
])  # fmt: skip
def test_addresses_at_which_it_is_known_who_calls_are_taken(tmp_path: Path, text: str) -> None:
    load(tmp_path, text)


@pytest.mark.parametrize(("text", "line", "problem", "hint"), [
    (LOOPBACK, 2, 'any user of this machine can reach "127.0.0.1:0"', "allow_anonymous = true"),
    ('[server]\nlisten = [\n"unix:s",\n"localhost:1"]\n', 4, "any user of this machine", "fumehood token add"),
    (PUBLIC, 2, "can be reached from other machines, and there is no TLS", "[server.tls]"),
    (PUBLIC + "allow_anonymous = true\n", 2, "there is no TLS", "[server.tls]"),
    (PUBLIC + CALLER, 2, "there is no TLS", "[server.tls]"),
    (PUBLIC + TLS, 2, "there are no callers", "[[caller]]"),
    (PUBLIC + "allow_anonymous = true\n" + TLS, 2, "there are no callers", "[[caller]]"),
    (LOOPBACK + TLS + CALLER + 'certificate = "b"\n', 8, "no authority vouches for it", "client_ca"),
    (LOOPBACK + CALLER + CALLER, 6, "the same `name`", "each caller has its own"),
    (LOOPBACK + CALLER + 'listen = "127.0.0.1:0"\n', 5, "any user of this machine this caller", "allow_anonymous"),
    (LOOPBACK + CALLER + 'listen = "unix:other"\n', 5, "does not listen on", "unix:"),
    (PUBLIC + TLS + CALLER + 'listen = "0.0.0.0:7443"\n', 8, "from other machines", "a token or a certificate"),
    (LOOPBACK + '[[caller]]\nname = "Ada"\n', 4, "can't be the name of a caller", "starting with a letter"),
    (LOOPBACK + '[[caller]]\nname = "a:b"\n', 4, "can't be the name of a caller", ""),
    (LOOPBACK + CALLER + 'tools = ["files.*"]\n', 5, "matches no tool's name", "files_*"),
    (LOOPBACK + CALLER + 'tolls = ["*"]\n', 5, "unknown key `tolls`", "tools"),
    (LOOPBACK + 'allow_anonymous = true\n[server.tls]\ncertificate = "c"\n', 4, "`key` is missing", ""),
])  # fmt: skip
def test_what_leaves_open_who_calls_is_refused_with_what_to_write(
    tmp_path: Path, text: str, line: int, problem: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert (caught.value.line, problem in caught.value.problem, hint in caught.value.hint) == (line, True, True), str(
        caught.value
    )


@pytest.mark.parametrize("name", ["k", "c", "a", "tokens"])
def test_no_plugin_is_granted_the_files_by_which_callers_are_known(tmp_path: Path, name: str) -> None:
    for each in ("keys", "free", "p"):
        (tmp_path / each).mkdir()
    tls = "".join(f'{key} = "keys/{file}"\n' for key, file in (("certificate", "c"), ("key", "k"), ("client_ca", "a")))
    head = f'[server]\nlisten = ["unix:run/s"]\ntoken_file = "keys/tokens"\n[server.tls]\n{tls}[[plugin]]\npath = "p"\n'
    (tmp_path / "keys" / name).touch()
    load(tmp_path, head + 'read = ["free"]\n')
    with pytest.raises(ConfigError, match="the file of the secret"):
        load(tmp_path, head + f'read = ["keys/{name}"]\n')


def test_a_key_in_a_folder_that_sandboxes_are_shown_is_refused_and_a_certificate_is_not(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    text = '[server]\nlisten = ["unix:run/s"]\n[server.tls]\ncertificate = "{}"\nkey = "{}"\n[[plugin]]\npath = "p"\n'
    load(tmp_path, text.format("p/c", "k"))
    with pytest.raises(ConfigError, match="which sandboxes are shown") as caught:
        load(tmp_path, text.format("c", "p/k"))
    assert caught.value.line == 5
