"""Declared dependencies and plugin.lock: what is read, what is refused and where; and how installers are bounded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fumehood_server.errors import PluginInvalidError
from fumehood_server.model.tool import Reason
from fumehood_server.plugins.environments.contents import contents_digest
from fumehood_server.plugins.environments.environments import Environment, Environments, usable_lock
from fumehood_server.plugins.environments.errors import EnvironmentUnavailableError, InstallerError
from fumehood_server.plugins.environments.installer import find_installer, run_installer
from fumehood_server.plugins.environments.interpreter import TAG
from fumehood_server.plugins.environments.packages import install_packages
from fumehood_server.plugins.environments.plugin_lock import (
    ANY,
    LockedPackage,
    make_plugin_lock,
    plugin_lock_text,
    read_plugin_lock,
)
from fumehood_server.plugins.environments.record import read_record, write_record
from fumehood_server.plugins.environments.resolve import resolve
from fumehood_server.plugins.manifest import try_manifest

from .support import cli, manifest_of, python
from .wheels import index_environment, make_wheel

ONE = LockedPackage(name="one", version="1.0", sha256=("a" * 64, "b" * 64), marker="python_version >= '3.11'")
ELSEWHERE = LockedPackage(name="two", version="1.0", sha256=("c" * 64,), marker="sys_platform == 'win32'")


def declare(folder: Path, *dependencies: str) -> list[str]:
    python(folder)
    manifest = folder / "plugin.toml"
    manifest.write_text(manifest.read_text() + f"dependencies = {list(dependencies)!r}\n")
    return [f"{each.line}: {each.problem}" for each in try_manifest(folder).problems]


def test_dependencies_are_told_in_one_spelling(tmp_path: Path) -> None:
    assert declare(tmp_path, "B>=1 , <2", "a[x] ; python_version > '3'", "B<2,>=1") == []
    assert manifest_of(tmp_path).dependencies == ("B<2,>=1", 'a[x]; python_version > "3"')


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("not a name", "is not a dependency"),
        ("", "is not a dependency"),
        ("--index-url=x", "is not a dependency"),
        ("a; python_version > '${SECRET}'", "is not a dependency"),
        ("a" * 600, "is not a dependency"),
        ("a; " + "(" * 400 + "python_version>'3'" + ")" * 10, "is not a dependency"),
        ("a @ https://example.com/a.whl", "names an address"),
        ("a @ file:///etc", "names an address"),
        ("pydantic<2", "pydantic is 2"),
    ],
)
def test_what_is_no_dependency_is_refused_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    (found,) = declare(tmp_path, "fine>=1", "pydantic>=2", text)
    assert found.startswith("6: ")
    assert problem in found


def test_dependencies_of_a_pyproject_count_unless_the_manifest_has_its_own(tmp_path: Path) -> None:
    python(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["a>=1", "fumehood-sdk"]\n')
    assert manifest_of(tmp_path).dependencies == ("a>=1", "fumehood-sdk")
    declare(tmp_path)
    assert manifest_of(tmp_path).dependencies == ()
    python(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["a @ https://example.com/a.whl"]\n')
    (problem,) = try_manifest(tmp_path).problems
    assert (problem.path.name, problem.line) == ("pyproject.toml", 2)


def test_dependencies_of_another_kind_are_refused(tmp_path: Path) -> None:
    cli(tmp_path)
    manifest = tmp_path / "plugin.toml"
    manifest.write_text(manifest.read_text().replace("[[tool]]", 'dependencies = ["a"]\n[[tool]]'))
    assert [each.problem for each in try_manifest(tmp_path).problems] == ['`dependencies` is not for kind "cli"']


def test_a_lock_is_read_as_it_was_written_and_needs_what_its_markers_say(tmp_path: Path) -> None:
    lock = make_plugin_lock(("one",), ANY, (ELSEWHERE, ONE))
    text = plugin_lock_text(lock)
    (tmp_path / "plugin.lock").write_text(text)
    assert read_plugin_lock(tmp_path) == lock
    assert lock.needed_here() == (ONE,)
    assert plugin_lock_text(make_plugin_lock(("one",), ANY, (ONE, ELSEWHERE))) == text


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("version = 1\n", "version = 2\n", 2, "of version 2"),
        ('name = "one"', 'name = "One"', 9, "canonical form"),
        ('name = "one"', 'name = "pydantic-core"', 9, "comes with the SDK"),
        ('name = "one"', 'name = "-r"', 9, "canonical form"),
        ('version = "1.0"', 'version = "1.0 --pre"', 10, "version is needed"),
        ("a" * 64, "a" * 63, 13, "pattern"),
        ("python_version >=", "os.system >=", 11, "a marker is needed"),
        ("marker = ", 'url = "https://example.com"\nmarker = ', 11, "unknown key `url`"),
    ],
)
def test_a_lock_that_says_anything_else_is_refused_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, problem: str
) -> None:
    text = plugin_lock_text(make_plugin_lock(("one",), ANY, (ONE,)))
    assert old in text
    (tmp_path / "plugin.lock").write_text(text.replace(old, new))
    with pytest.raises(PluginInvalidError) as caught:
        read_plugin_lock(tmp_path)
    assert (caught.value.line, problem in caught.value.problem) == (line, True), caught.value


def test_a_lock_with_two_versions_for_this_machine_is_refused(tmp_path: Path) -> None:
    other = LockedPackage(name="one", version="2.0", sha256=("d" * 64,))
    (tmp_path / "plugin.lock").write_text(plugin_lock_text(make_plugin_lock((), ANY, (ONE, other))))
    with pytest.raises(PluginInvalidError, match="two versions"):
        read_plugin_lock(tmp_path)


@pytest.mark.parametrize(
    ("resolved_for", "dependencies", "code"),
    [
        (ANY, ("one",), None),
        (TAG, ("one",), None),
        ("cpython-310-riscv64-linux-gnu", ("one",), "lock_for_other_interpreter"),
        (ANY, ("one", "two"), "lock_stale"),
        (ANY, (), "lock_stale"),
    ],
)
def test_a_lock_holds_for_its_dependencies_and_interpreter(
    tmp_path: Path, resolved_for: str, dependencies: tuple[str, ...], code: str | None
) -> None:
    (tmp_path / "plugin.lock").write_text(plugin_lock_text(make_plugin_lock(("one",), resolved_for, (ONE,))))
    try:
        found: Reason | None = None
        assert usable_lock("host", tmp_path, dependencies, named=tmp_path) is not None
    except EnvironmentUnavailableError as error:
        found = error.reason
    assert (found and found.code) == code
    assert found is None or found.remedy.startswith(f"fumehood plugin lock {tmp_path}")


def test_dependencies_without_a_lock_are_refused_unless_the_folder_brings_its_packages(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnavailableError) as caught:
        usable_lock("host", tmp_path, ("one",), named=tmp_path)
    assert caught.value.reason.code == "dependencies_unlocked"
    (tmp_path / ".venv").mkdir()
    assert usable_lock("host", tmp_path, ("one",), named=tmp_path) is None


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Environments, Environment]:
    """An environment of a package with a subfolder, which requires pydantic."""
    make_wheel(tmp_path / "index", "one", files={"one/__init__.py": "A = 1\n"}, requires=["pydantic>=2"])
    for name, value in index_environment(tmp_path / "index").items():
        monkeypatch.setenv(name, value)
    lock = resolve(["one"], find_installer("uv"))
    assert [each.name for each in lock.packages] == ["one"]
    environments = Environments(tmp_path / "environments")
    made = Environment("the environment of host", tmp_path, environments.root / "key")
    left = environments.root / ".key.killed.new"
    left.mkdir(parents=True)
    assert install_packages(environments, made, lock.packages, lambda: find_installer("uv"))
    assert not left.exists()
    assert not install_packages(environments, made, lock.packages, lambda: find_installer("uv"))
    return environments, made


def test_every_change_of_installed_packages_is_found(environment: tuple[Environments, Environment]) -> None:
    environments, made = environment
    module = made.contents / "one" / "__init__.py"
    (bytecode,) = made.contents.glob("one/__pycache__/*.pyc")
    digest = contents_digest(made.contents)

    def code() -> str:
        reason = environments.verify(made)
        assert environments.problem(made) == reason
        return reason.code if reason else ""

    assert code() == ""
    for path in (module, bytecode):
        old, mode = path.read_bytes(), path.stat().st_mode
        path.chmod(0o644)
        path.write_bytes(old + b" ")
        assert code() == "environment_changed", path
        path.write_bytes(old)
        path.chmod(mode)
        assert code() == "", path
    for make, undo in (
        (lambda path: path.touch(), Path.unlink),
        (lambda path: path.symlink_to("/etc/passwd"), Path.unlink),
        (module.rename, lambda path: path.rename(module)),
    ):
        added = made.contents / "added.py"
        make(added)
        assert code() == "environment_changed"
        undo(added)
        assert (code(), contents_digest(made.contents)) == ("", digest)
    record = read_record(made.path)
    assert record is not None
    assert record.sdk_requirements == ("pydantic>=2",)
    write_record(made.path, type(record)(record.contents, record.packages, ("pydantic<2",)))
    assert code() == "environment_unfit"  # another sidecar, which brings another pydantic
    made.path.rename(made.path.with_name("gone"))
    assert code() == "environment_missing"


@pytest.mark.parametrize(
    ("code", "limits", "problem"),
    [
        ("import time; time.sleep(60)", {"time_limit_s": 0.1}, "took longer"),
        (
            "open('big', 'wb').write(bytes(1 << 20)); import time; time.sleep(60)",
            {"max_bytes": 1000},
            "takes more than",
        ),
        ("import sys; sys.exit('\\x1b[2J no such index')", {}, r"\x1b[2J no such index"),
    ],
)
def test_an_installer_that_hangs_fills_the_disk_or_fails_is_ended_and_told(
    tmp_path: Path, code: str, limits: dict[str, float], problem: str
) -> None:
    def run(code: str) -> str:
        folder = tmp_path / str(len(code))
        folder.mkdir()
        return run_installer((sys.executable, "-c", code), folder, what="installing", **limits)  # type: ignore[arg-type]  # each a number

    with pytest.raises(InstallerError) as caught:
        run(code)
    assert problem in caught.value.problem
    if "time_limit_s" not in limits:
        assert run("print('fine')") == "fine\n"
