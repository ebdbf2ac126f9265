"""What plugins were run with is removed when nothing leads to it and nobody uses it, and not before."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fumehood_server.plugins.environments.in_use import UNUSED_S, lock_path, remove_environments, unused_environments
from fumehood_server.plugins.environments.installer import find_installer
from fumehood_server.plugins.environments.plugin_lock import plugin_lock_text
from fumehood_server.plugins.environments.resolve import resolve

from tests import preloaded
from tests.cli.command import COMMAND, environment, fumehood
from tests.plugins.support import cli, manifest_of, python
from tests.plugins.wheels import index_environment, make_wheel

WANTED = {"one": "1.0.0", "two": "1.0.0", "three": "2.0.0"}
HOLD = """
import sys
from pathlib import Path
from fumehood_server.plugins.environments.in_use import EnvironmentsInUse
EnvironmentsInUse().hold(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two plugins with equal locks, one with its own and one without, whose packages are there."""
    index = tmp_path / "index"
    for version in ("1.0.0", "2.0.0"):
        make_wheel(index, "greeting", version, files={"greeting.py": ""})
    for name, value in index_environment(index).items():
        monkeypatch.setenv(name, value)
    for name, version in WANTED.items():
        folder = python(tmp_path / name)
        with (folder / "plugin.toml").open("a") as manifest:
            manifest.write(f'dependencies = ["greeting=={version}"]\n')
        (folder / "plugin.lock").write_text(
            plugin_lock_text(resolve(manifest_of(folder).dependencies, find_installer("uv")))
        )
    cli(tmp_path / "four")
    entries = "".join(f'[[plugin]]\npath = "{name}"\n' for name in (*WANTED, "four"))
    (tmp_path / "fumehood.toml").write_text(entries)
    done = fumehood("plugin", "build", folder=tmp_path, more=index_environment(index))
    assert done.status == 0, done.stderr
    return tmp_path


def remove(house: Path, name: str) -> list[str]:
    """Remove a plugin. Returns the environments that went with it."""
    done = fumehood("plugin", "remove", name, "--json", folder=house)
    assert done.status == 0, done.stderr
    removed = done.json["environments_removed"]
    assert isinstance(removed, list)
    return removed


@contextmanager
def held_by_another(path: Path) -> Iterator[None]:
    """As by another sidecar that runs with it."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield
        process.communicate()


def start_once(house: Path) -> None:
    """Start a sidecar by the configuration, and end it when it serves."""
    with preloaded.Popen(
        [*COMMAND, "serve", "--log-format", "json"], cwd=house, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert any('"event":"serving"' in line for line in process.stderr)
        process.terminate()
        process.communicate(timeout=30)


def test_packages_go_with_their_last_plugin_or_after_days_and_never_while_they_are_used(house: Path) -> None:
    root = house / ".fumehood/environments"

    def there() -> set[Path]:
        return {each for each in root.iterdir() if each.is_dir()}

    def age() -> None:
        for each in there():
            os.utime(each, (time.time() - 2 * UNUSED_S,) * 2)

    shared, own = sorted(there(), key=lambda each: "2.0.0" in (each / "environment.json").read_text())
    age()
    start_once(house)
    assert there() == {shared, own}, "control: plugins lead to them"
    assert remove(house, "one") == [], "two has an equal lock"
    with held_by_another(own):
        assert remove(house, "three") == [], "a sidecar may run with it"
        age()
        assert remove_environments([own]) == ()
    assert own in unused_environments(root)
    with held_by_another(own):
        assert unused_environments(root) == {shared}, "it was used a moment ago"
    age()
    start_once(house)
    assert there() == {shared}
    assert remove(house, "two") == [str(shared)]
    assert there() == set()


def test_what_killed_commands_left_goes_at_a_start_and_not_while_it_may_be_worked_on(tmp_path: Path) -> None:
    state = tmp_path / ".fumehood"
    environments, installed = state / "environments", state / "installed"
    killed, worked_on = (environments / f".{key * 64}.x1.new" for key in "ab")
    old, young = installed / ".new-old", installed / ".new-young"
    for each in (killed, worked_on, old, young):
        (each / "environment").mkdir(parents=True)
    os.utime(old, (time.time() - 2 * 86_400,) * 2)
    cli(tmp_path / "any")
    (tmp_path / "fumehood.toml").write_text('[[plugin]]\npath = "any"\n')
    with lock_path(environments, "b" * 64).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        start_once(tmp_path)
        assert [each.exists() for each in (killed, worked_on, old, young)] == [False, True, False, True]
    start_once(tmp_path)
    assert not worked_on.exists()
