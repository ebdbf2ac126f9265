"""Servers of npm and the Python index are resolved to exact versions held to digests, and none of their code runs."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.mcp_import.npm_package import NpmPackage, resolve_npm
from fumehood_server.cli.mcp_import.own_code import MAX_BYTES
from fumehood_server.cli.mcp_import.plugin_folder import FolderContent, FolderState, manifest_text
from fumehood_server.cli.mcp_import.python_package import PythonPackages, resolve_project, resolve_python

from tests.mcp_import.npm_registry import NpmRegistry, npm_registry
from tests.plugins.wheels import index_environment, make_wheel

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm: `make setup` gets it")


@pytest.fixture(scope="module")
def registry() -> Iterator[NpmRegistry]:
    with npm_registry() as found:
        found.publish("dep", "1.0.0", {"index.js": ""})
        for version in ("1.0.0", "1.2.0"):
            found.publish(
                "@scope/server",
                version,
                {"dist/index.js": "x", "other.js": "y"},
                bin={"server": "dist/index.js", "other": "./other.js"},
                dependencies={"dep": "^1"},
            )
        found.publish("scripted", "1.0.0", {"run.js": ""}, bin="run.js", scripts={"install": "touch /tmp/ran"})
        found.publish("programs", "1.0.0", {"a.js": ""}, bin={"a": "a.js", "b": "b.js"})
        yield found


def npm(
    registry: NpmRegistry,
    monkeypatch: pytest.MonkeyPatch,
    *requirements: str,
    script: str = "",
    old: Path | None = None,
) -> NpmPackage:
    for name, value in registry.environment.items():
        monkeypatch.setenv(name, value)
    return resolve_npm("plugin", requirements, script, old, lambda _line: None)


@needs_npm
def test_a_package_is_resolved_to_a_lock_without_addresses(
    registry: NpmRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = npm(registry, monkeypatch, "@scope/server")
    assert (found.name, found.version, found.packages, found.scripts) == ("@scope/server", "1.2.0", 2, ())
    assert found.program == "node_modules/@scope/server/dist/index.js"
    assert found.build == ("npm", "ci", "--ignore-scripts")
    assert found.build_host == f"127.0.0.1:{registry.port}"
    package, lock = (json.loads(found.files[name]) for name in ("package.json", "package-lock.json"))
    assert package["dependencies"] == {"@scope/server": "1.2.0"}
    assert "http" not in found.files["package-lock.json"]
    assert all(each["integrity"].startswith("sha512-") for name, each in lock["packages"].items() if name)
    assert found.files[".npmrc"].splitlines()[-1].endswith(f"//{found.build_host}")
    # Imported again, what was chosen stays, and nobody is asked; another wish is another choice.
    for name, text in found.files.items():
        (tmp_path / name).write_text(text)
    asked = len(registry.asked)
    assert npm(registry, monkeypatch, "@scope/server", old=tmp_path).files == found.files
    assert len(registry.asked) == asked
    other = npm(registry, monkeypatch, "@scope/server@1.0.0", script="other", old=tmp_path)
    assert (other.version, other.program) == ("1.0.0", "node_modules/@scope/server/other.js")


@needs_npm
def test_packages_with_scripts_are_named(registry: NpmRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    found = npm(registry, monkeypatch, "scripted")
    assert (found.build, found.scripts, found.program) == (("npm", "ci"), ("scripted",), "node_modules/scripted/run.js")


@needs_npm
def test_what_has_no_one_program_is_refused(registry: NpmRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    for requirement, script, code, said in (
        ("absent", "", "not_resolved", "absent"),
        ("programs", "", "no_program", "several programs: a, b"),
    ):
        with pytest.raises(NotImportableError) as caught:
            npm(registry, monkeypatch, requirement, script=script)
        assert (caught.value.code, said in caught.value.reason) == (code, True), caught.value.reason


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that pip and uv take wheels from, and from nowhere else."""
    folder = tmp_path / "dist"
    for name, value in index_environment(folder).items():
        monkeypatch.setenv(name, value)
    for version in ("1.0.0", "2.0.0"):
        make_wheel(folder, "greets", version, files={"greets.py": ""})


def python(requirement: str, old: Path | None = None) -> PythonPackages:
    return resolve_python(requirement, (), old, lambda _line: None)


@pytest.mark.usefixtures("index")
def test_a_python_package_is_resolved_to_a_lock_with_hashes(tmp_path: Path) -> None:
    found = python("greets")
    assert (found.version, found.dependencies, found.packages) == ("2.0.0", ("greets==2.0.0",), 1)
    lock = tomllib.loads(found.lock)
    assert [len(each["sha256"][0]) for each in lock["package"]] == [64]
    old = python("greets==1.0.0")
    (tmp_path / "plugin.lock").write_text(old.lock)
    shutil.rmtree(tmp_path / "dist")
    assert python("greets", tmp_path) == old
    with pytest.raises(NotImportableError) as caught:
        python("greets>1", tmp_path)
    assert caught.value.code == "not_resolved"


@pytest.mark.usefixtures("index")
def test_what_a_project_depends_on_is_resolved(tmp_path: Path) -> None:
    def resolved(*others: str) -> PythonPackages | None:
        return resolve_project(tmp_path, others, None, lambda _line: None)

    assert resolved() is None
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\ndependencies = ["greets<2"]\n')
    found = resolved()
    assert found is not None
    assert (found.dependencies, "1.0.0" in found.lock) == (("greets<2",), True)


def manifest(*arguments: str) -> str:
    return manifest_text(
        name="x",
        version="1.0.0",
        description='q" \x7f\x1b',
        command=("node", *arguments),
        build=("npm", "ci"),
        environment={"LEVEL": "a\nb"},
        secrets={"KEY": "x-key"},
    )


def test_a_manifest_holds_what_it_is_given_whatever_that_is() -> None:
    found = tomllib.loads(manifest('"]\n[x]', "\\", "\t"))["plugin"]
    assert found["command"] == ["node", '"]\n[x]', "\\", "\t"]
    assert (found["kind"], found["description"], found["build"]) == ("mcp", 'q" \x7f\x1b', ["npm", "ci"])
    assert found["environment"] == {"LEVEL": "a\nb", "KEY": {"secret": "x-key"}}


def test_a_folder_is_told_to_be_new_the_same_changed_by_hand_or_somebody_elses(tmp_path: Path) -> None:
    folder = tmp_path / "plugin"
    first = FolderContent(manifest=manifest("a"), files={"package.json": "{}\n"})
    second = FolderContent(manifest=manifest("b"), files={"package.json": "{}\n"})
    assert first.state_of(folder) is FolderState.NEW
    first.write(folder)
    assert first.state_of(folder) is FolderState.SAME
    assert second.state_of(folder) is FolderState.CHANGED
    assert '-command = ["node", "a"]\n+command = ["node", "b"]' in second.diff(folder)
    with (folder / "plugin.toml").open("a") as file:
        file.write("# mine\n")
    assert second.state_of(folder) is FolderState.BY_HAND
    (folder / "plugin.toml").write_text(manifest("a"))
    assert first.state_of(folder) is FolderState.FOREIGN
    (tmp_path / "file").write_text("")
    assert first.state_of(tmp_path / "file") is FolderState.FOREIGN


def test_a_program_is_copied_and_seen_to_differ(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_bytes(b"\x7fELF one")
    content = FolderContent(manifest=manifest(), program=program)
    content.write(tmp_path / "plugin")
    copy = tmp_path / "plugin" / "bin" / "server"
    assert (copy.read_bytes(), copy.stat().st_mode & 0o777) == (b"\x7fELF one", 0o755)
    assert content.state_of(tmp_path / "plugin") is FolderState.SAME
    program.write_bytes(b"\x7fELF two")
    assert content.state_of(tmp_path / "plugin") is FolderState.CHANGED
    assert "its program differs" in content.diff(tmp_path / "plugin")


def test_a_projects_code_is_copied_without_what_is_hidden_or_leads_out(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in ("index.js", "node_modules/dep/index.js", ".env", ".git/config", "venv/x", "package-lock.json"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    (tmp_path / "secret").write_text("x")
    (project / "out").symlink_to(tmp_path / "secret")
    (project / "in").symlink_to("index.js")
    content = FolderContent(manifest=manifest(), code=project)
    content.write(tmp_path / "plugin")
    code = tmp_path / "plugin" / "code"
    copied = sorted(str(path.relative_to(code)) for path in code.rglob("*") if path.is_file())
    assert copied == ["in", "index.js", "node_modules/dep/index.js"]
    assert content.state_of(tmp_path / "plugin") is FolderState.SAME
    (project / "index.js").write_text("changed")
    assert content.state_of(tmp_path / "plugin") is FolderState.CHANGED
    assert "its code" in content.diff(tmp_path / "plugin")
    with (project / "large").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(NotImportableError, match="too much to be copied"):
        content.write(tmp_path / "plugin")
    assert (code / "index.js").read_text() == "index.js"
