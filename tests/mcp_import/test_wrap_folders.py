"""`fumehood mcp wrap` installs a command line once for all folders, and a relative one once for each folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import fumehood
from tests.mcp_import import servers
from tests.mcp_import.npm_registry import npm_registry
from tests.mcp_import.own_server import write_script


@pytest.fixture
def state() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:  # a unix socket's path has 107 bytes
        yield Path(name)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two, each with the server's script."""
    found = tmp_path / "one", tmp_path / "two"
    for each in found:
        each.mkdir()
        write_script(each)
    return found


def installed(state: Path, folders: tuple[Path, ...], *arguments: str, more: dict[str, str] | None = None) -> int:
    """How many installations there are after a start in each folder."""
    environment = {"XDG_STATE_HOME": str(state), "PATH": os.environ["PATH"], **(more or {})}
    for each in folders:
        done = fumehood("mcp", "wrap", *arguments, folder=each, stdin="", more=environment)
        assert done.status == 0, done.stderr
    return len([*(state / "fumehood" / "wrap").iterdir()])


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (("--", "python3", "{one}/code/server.py", "~", "--flag"), 1),
        (("--", "python3", "code/server.py"), 2),
        (("--env", "DATA=./data", "--", "python3", "{one}/code/server.py"), 2),
    ],
)
def test_the_folder_counts_where_something_is_named_relative_to_it(
    state: Path, folders: tuple[Path, Path], arguments: tuple[str, ...], count: int
) -> None:
    words = [each.format(one=folders[0]) for each in arguments]
    assert installed(state, folders, *words) == count


@pytest.mark.slow("installs a server by npm")
@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm: `make setup` gets it")
def test_a_package_is_installed_once_for_all_folders(state: Path, folders: tuple[Path, Path]) -> None:
    with npm_registry() as registry:
        registry.publish("@scope/notes", "1.0.0", {"index.js": servers.NODE}, bin={"notes": "index.js"})
        command = ("--", "npx", "-y", "@scope/notes", "/srv/notes")
        assert installed(state, folders[:1], *command, more=registry.environment) == 1
        asked = len(registry.asked)
        assert installed(state, folders[1:], *command, more=registry.environment) == 1
        assert len(registry.asked) == asked
