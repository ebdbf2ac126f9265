"""`[secrets]` of fumehood.toml: what is refused, and which files no grant may cover."""

from __future__ import annotations

from pathlib import Path

import pytest
from fumehood_server.config.load import load_config
from fumehood_server.errors import ConfigError

from tests.plugins.support import configure, executable, tool_toml

GOOD = '[secrets.KEY]\nfile = "keys/key"\n[secrets.OTHER]\nenv = "OTHER_KEY"\n'
PLUGIN = '[[plugin]]\npath = "one"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    executable(tmp_path / "one", tool_toml("t"))
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "key").write_text("a-secret-value\n")
    (tmp_path / "data").mkdir()
    return tmp_path


def test_secrets_are_read_with_their_places_and_granted_by_tool(folder: Path) -> None:
    config = load_config(configure(folder, GOOD + PLUGIN + '[plugin.tools.t]\nsecrets = ["OTHER", "KEY"]\n'))
    assert config.secrets["KEY"].file == folder / "keys" / "key"
    assert config.secrets["OTHER"].variable == "OTHER_KEY"
    assert config.plugins[0].tools["t"].secrets == ("KEY", "OTHER")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("[secrets.KEY]\n", 1, "needs one place"),
        ('[secrets.KEY]\nfile = "a"\nenv = "B"\n', 1, "needs one place"),
        ('[secrets.KEY]\npath = "a"\n', 2, "unknown key `path`"),
        ('[secrets."a key"]\nfile = "a"\n', 1, "can't be the name of a secret"),
        ('[secrets.KEY]\nenv = "A=B"\n', 2, "not the name of an environment variable"),
        ('[secrets.KEY]\nfile = ""\n', 2, "at least 1"),
        (GOOD + PLUGIN + '[plugin.tools.t]\nsecrets = ["KEZ"]\n', 8, 'one of "KEY", "OTHER"'),
        (PLUGIN + '[plugin.tools.t]\nsecrets = ["KEY"]\n', 4, "write [secrets.KEY]"),
        (PLUGIN + '[plugin.tools.t]\nsecrets = "KEY"\n', 4, "must be an array"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(folder: Path, text: str, line: int, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(configure(folder, text))
    assert said in str(caught.value)
    assert caught.value.line == line


@pytest.mark.parametrize(
    "grant", ['read = ["keys"]', 'read = ["keys/key"]', 'write = ["keys"]\nmax_side_effects = "write"']
)
def test_no_plugin_is_granted_the_file_of_a_secret(folder: Path, grant: str) -> None:
    with pytest.raises(ConfigError, match="overlaps the file of the secret KEY"):
        load_config(configure(folder, GOOD + PLUGIN + grant))
    assert load_config(configure(folder, GOOD + PLUGIN + 'read = ["data"]'))


@pytest.mark.parametrize("place", ["one/key", "/usr/key"])
def test_no_secret_lies_where_sandboxes_are_shown_it(folder: Path, place: str) -> None:
    with pytest.raises(ConfigError, match="which sandboxes are shown"):
        load_config(configure(folder, f'[secrets.KEY]\nfile = "{place}"\n' + PLUGIN))


def test_no_secret_is_found_through_a_link_that_a_plugin_could_turn(folder: Path) -> None:
    (folder / "data" / "link").symlink_to(folder / "keys")
    text = '[secrets.KEY]\nfile = "data/link/key"\n' + PLUGIN
    assert load_config(configure(folder, text + 'read = ["one"]'))
    with pytest.raises(ConfigError, match="leads through the symlink"):
        load_config(configure(folder, text + 'write = ["data"]\nmax_side_effects = "write"'))
