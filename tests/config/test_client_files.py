"""What `[client]` names is a caller's: no plugin reads its token and key, and none changes whom the commands trust."""

from __future__ import annotations

from pathlib import Path

import pytest
from fumehood_server.config import load_config
from fumehood_server.errors import ConfigError

PLUGIN = '[[plugin]]\npath = "dice"\nmax_side_effects = "write"\n{} = ["{}"]\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("home", "mine", "data", "dice/.fumehood"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("mine/file", "data/note", "dice/file", "dice/.fumehood/file"):
        (tmp_path / name).touch()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def refused(folder: Path, client: str, key: str, path: str | Path, *, config: str = "fumehood.toml") -> str:
    """The problem with the file; empty where it is taken."""
    place = folder / config
    place.write_text(f"[client]\n{client}\n" + PLUGIN.format(key, path))
    try:
        load_config(place)
    except ConfigError as error:
        return error.problem
    return ""


@pytest.mark.parametrize(
    ("name", "is_secret"), [("token_file", True), ("key", True), ("certificate", False), ("tls_ca", False)]
)
def test_no_plugin_changes_what_commands_use_and_none_reads_a_token_or_a_key(
    folder: Path, name: str, *, is_secret: bool
) -> None:
    client = f'{name} = "mine/file"'
    assert "which no plugin may write" in refused(folder, client, "write", "mine")
    assert bool(refused(folder, client, "read", "mine/file")) is is_secret
    assert bool(refused(folder, client, "read", "mine")) is is_secret
    assert refused(folder, client, "write", "data") == ""
    assert refused(folder, client, "read", "data/note") == ""


@pytest.mark.parametrize("name", ["token_file", "key", "certificate", "tls_ca"])
def test_a_symlink_to_it_is_not_replaced(folder: Path, name: str) -> None:
    (folder / "data/link").symlink_to("../mine")
    (folder / "links").mkdir()
    (folder / "links/link").symlink_to("../mine")
    assert refused(folder, f'{name} = "data/link/file"', "write", "data")
    assert refused(folder, f'{name} = "links/link/file"', "write", "data") == ""


@pytest.mark.parametrize("name", ["token_file", "key"])
def test_it_is_not_kept_where_sandboxes_are_shown(folder: Path, name: str) -> None:
    for place in ("dice/file", "dice/.fumehood/file", "/etc/ssl/certs/file"):
        assert "which sandboxes are shown" in refused(folder, f'{name} = "{place}"', "read", "data")
        assert refused(folder, f'tls_ca = "{place}"', "read", "data") == ""


def test_behind_a_symlink_to_the_configuration_it_is_that_of_both_folders(folder: Path) -> None:
    (folder / "working").mkdir()
    (folder / "working/token").touch()
    (folder / "token").touch()
    (folder / "working/fumehood.toml").symlink_to("../fumehood.toml")
    for path in ("working/token", "token"):
        assert "what commands show the sidecar" in refused(
            folder, 'token_file = "token"', "read", path, config="working/fumehood.toml"
        )
    assert refused(folder, 'token_file = "token"', "read", "data", config="working/fumehood.toml") == ""
