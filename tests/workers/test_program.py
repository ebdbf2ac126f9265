"""What is launched for each kind of plugin, and what it is shown of this machine."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from pathlib import Path

import pytest
from fumehood_sandbox import Executable, PythonModule
from fumehood_server.errors import PluginInvalidError
from fumehood_server.model.plugin import Kind
from fumehood_server.plugins.launch import sdk_site
from fumehood_server.plugins.launch.program import BuiltProgram, build


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def sources(built: BuiltProgram) -> set[str]:
    return {mount.source for mount in built.runtime}


def test_a_python_plugin_sees_the_sdk_and_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "dice.py").touch()
    built = build(Kind.PYTHON, tmp_path, entrypoint="dice:plugin")
    assert built.program == PythonModule(
        "fumehood_sdk.main", argv=("dice:plugin", str(tmp_path)), path=(sdk_site.SITE, str(tmp_path))
    )
    targets = {mount.target for mount in built.runtime}
    assert {str(tmp_path), f"{sdk_site.SITE}/fumehood_sdk", f"{sdk_site.SITE}/google/protobuf"} <= targets
    site = Path(importlib.metadata.distribution("grpcio").locate_file("")).resolve()
    assert str(site) not in sources(built)
    assert not any(Path(source).is_relative_to(site / "grpc") for source in sources(built) if source)


def test_the_sdk_mounts_cover_what_the_sdk_requires() -> None:
    names = {"fumehood-protos": "fumehood", "protobuf": "google.protobuf"}
    needed: set[str] = set()
    todo = ["fumehood-sdk"]
    while todo:
        name = todo.pop()
        if name in needed:
            continue
        needed.add(name)
        wanted = [line for line in importlib.metadata.requires(name) or [] if "extra ==" not in line]
        todo += [found.group() for line in wanted if (found := re.match(r"[A-Za-z0-9._-]+", line))]
    assert {names.get(name, name.replace("-", "_")) for name in needed} == set(sdk_site.REQUIRED)


def test_no_module_of_the_sdk_mounts_is_compiled_at_each_start() -> None:
    targets = {mount.target for mount in sdk_site.mounts()}
    files = {target for target in targets if target.endswith(".py")}
    assert f"{sdk_site.SITE}/typing_extensions.py" in files
    assert {importlib.util.cache_from_source(target) for target in files} <= targets


@pytest.mark.parametrize("entrypoint", ["", "dice", "dice:", ":plugin", "dice:1", "../dice:plugin", "moon:plugin"])
def test_an_entrypoint_that_can_not_be_found_is_named(tmp_path: Path, entrypoint: str) -> None:
    (tmp_path / "dice.py").touch()
    with pytest.raises(PluginInvalidError) as caught:
        build(Kind.PYTHON, tmp_path, entrypoint=entrypoint)
    assert caught.value.key == "plugin.entrypoint"
    assert caught.value.path == tmp_path / "plugin.toml"


@pytest.mark.parametrize("entrypoint", ["pack.inner:plugin", "pack:made.plugin", "dice:plugin"])
def test_packages_and_dotted_attributes_are_found(tmp_path: Path, entrypoint: str) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "inner.py").touch()
    (tmp_path / "dice.py").touch()
    build(Kind.PYTHON, tmp_path, entrypoint=entrypoint)


def test_a_system_command_needs_no_mount_of_its_own(tmp_path: Path) -> None:
    built = build(Kind.EXECUTABLE, tmp_path, command=("sh", "-c", "true"))
    assert isinstance(built.program, Executable)
    assert Path(built.program.argv[0]).resolve() == Path("/bin/sh").resolve()
    assert built.program.argv[1:] == ("-c", "true")
    assert built.working_directory == str(tmp_path)
    assert sdk_site.SITE not in " ".join(mount.target for mount in built.runtime)


def test_a_plugins_own_command_is_found_in_its_folder(tmp_path: Path) -> None:
    own = executable(tmp_path / "run")
    built = build(Kind.EXECUTABLE, tmp_path, command=("./run",))
    assert built.program == Executable((str(own),))


@pytest.mark.parametrize(
    "command", [(), ("",), ("./missing",), ("../outside",), ("no-such-command",), ("a/b",), ("a\0b",)]
)
def test_a_command_that_can_not_be_found_is_named(tmp_path: Path, command: tuple[str, ...]) -> None:
    folder = tmp_path / "plugin"
    folder.mkdir()
    executable(tmp_path / "outside")
    with pytest.raises(PluginInvalidError) as caught:
        build(Kind.EXECUTABLE, folder, command=command)
    assert caught.value.key == "plugin.command"


def test_a_command_elsewhere_brings_its_libraries_and_nothing_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "plugin"
    folder.mkdir()
    tool = executable(tmp_path / "opt" / "tool-1.2" / "bin" / "tool")
    for name in ("lib", "etc", "var"):
        (tmp_path / "opt" / "tool-1.2" / name).mkdir()
    monkeypatch.setenv("PATH", str(tool.parent))
    seen = sources(build(Kind.EXECUTABLE, folder, command=("tool",)))
    prefix = tool.parent.parent
    assert {str(prefix / "bin"), str(prefix / "lib")} <= seen
    assert not {str(prefix), str(prefix / "etc"), str(prefix / "var")} & seen


def test_a_command_in_a_home_is_shown_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "plugin"
    folder.mkdir()
    home = tmp_path / "home"
    tool = executable(home / "bin" / "tool")
    executable(home / "bin" / "secret")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", str(tool.parent))
    seen = sources(build(Kind.EXECUTABLE, folder, command=("tool",)))
    assert str(tool) in seen
    assert str(tool.parent) not in seen
    assert str(home) not in seen


@pytest.mark.promise("S101")
@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="this interpreter has no virtual environment")
def test_a_command_of_the_sidecars_own_environment_shows_nothing_else_of_it(tmp_path: Path) -> None:
    own = Path(sys.prefix).resolve()
    script = next(path for path in sorted((own / "bin").iterdir()) if path.is_file() and not path.is_symlink())
    script = next(path for path in (own / "bin" / "pip", script) if path.is_file())
    seen = sources(build(Kind.EXECUTABLE, tmp_path, command=(str(script),)))
    assert str(script) in seen
    assert not {str(own), str(own / "bin"), str(own / "lib")} & seen


def test_a_binary_that_can_not_be_found_is_named(tmp_path: Path) -> None:
    with pytest.raises(PluginInvalidError) as caught:
        build(Kind.CLI, tmp_path, binary="no-such-binary")
    assert caught.value.key == "plugin.binary"
    assert isinstance(build(Kind.CLI, tmp_path, binary="sh").program, PythonModule)
