"""`[journal] store` as a URL: what it refuses, where the password is, and that nobody is shown it."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from fumehood_server.config import load_config
from fumehood_server.config.config import SidecarConfig
from fumehood_server.config.config_file import JournalStore
from fumehood_server.config.effective import effective_document
from fumehood_server.config.restart import needs_restart
from fumehood_server.errors import ConfigError

URL = "postgresql://me@db.example/journal?sslmode=verify-full"


def loaded(folder: Path, text: str) -> SidecarConfig:
    path = folder / "fumehood.toml"
    path.write_text(f"[journal]\n{text}\n")
    return load_config(path)


def test_the_password_is_read_anew_from_its_file_and_shown_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("correct horse\n")
    secret.chmod(0o600)
    config = loaded(tmp_path, f'store = "{URL}"\npassword = {{ file = "password" }}')
    database = config.journal.database
    assert database is not None
    assert config.journal.store is JournalStore.POSTGRESQL
    assert database.reveal() == (URL, "correct horse")
    secret.write_text("battery staple")
    assert database.reveal() == (URL, "battery staple")
    document = effective_document(config).data
    assert orjson.loads(document)["journal"]["database"] == URL
    assert b"horse" not in document


def test_a_password_in_the_url_holds_and_is_shown_nowhere(tmp_path: Path) -> None:
    config = loaded(
        tmp_path, 'store = "postgresql://me:hunter22@db.example/journal?password=swordfish&sslmode=require"'
    )
    database = config.journal.database
    assert database is not None
    assert "hunter22" in database.reveal()[0]
    shown = "postgresql://me@db.example/journal?sslmode=require"
    assert (str(database), database.hide("hunter22, swordfish")) == (shown, "***, ***")
    assert b"hunter22" not in effective_document(config).data
    other = loaded(tmp_path, 'store = "postgresql://me:hunter33@db.example/journal?password=swordfish&sslmode=require"')
    assert needs_restart(config, other) == ("journal.store",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('store = "mysql://me@db/journal"', "is no URL of PostgreSQL"),
        ('store = "postgresql"', "unknown journal"),
        ('store = "sqlit"', "unknown journal"),
        ("store = 3", "must be a string"),
        ('store = "postgresql://me:secret99@db/j"\npassword = { env = "P" }', "has a password, too"),
        (f'store = "{URL}"\npassword = {{ env = "P", file = "p" }}', "needs one place"),
        ('store = "sqlite"\npassword = { env = "P" }', "a password is for a journal in PostgreSQL"),
    ],
)
def test_what_names_no_database_is_refused_with_what_to_write(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as raised:
        loaded(tmp_path, text)
    assert "secret99" not in str(raised.value)


def test_a_plugin_is_granted_neither_the_password_nor_its_folder(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "password").write_text("correct horse")
    (tmp_path / "free").mkdir()
    (tmp_path / "plugin").mkdir()
    head = f'store = "{URL}"\npassword = {{ file = "keys/password" }}\n[[plugin]]\npath = "plugin"\n'
    loaded(tmp_path, f'{head}read = ["free"]')
    with pytest.raises(ConfigError, match=r"journal\.password"):
        loaded(tmp_path, f'{head}read = ["keys"]')
