"""No write grant reaches what the sidecar executes, imports, reads as configuration or listens on."""

from __future__ import annotations

import os
import shutil
import site
import sys
import tempfile
from pathlib import Path

import fumehood.v1
import fumehood_sandbox
import fumehood_sdk
import fumehood_server
import pytest
from fumehood_server.config import load_config
from fumehood_server.config.grants import GrantError, Protected, protected_code, protected_paths, resolve_grants
from fumehood_server.config.own_code import code_paths, searched_folders
from fumehood_server.errors import ConfigError
from fumehood_server.plugins.store import PluginStore


def own(folder: Path) -> tuple[Protected, ...]:
    paths = protected_paths(
        state_dir=folder / "state",
        lock_path=folder / "fumehood.lock",
        config_path=None,
        plugin_folders=(),
        secret_files={},
        sockets=[folder / "run" / "fumehood.sock"],
    )
    return (*paths, *protected_code())


def taken(path: Path, protected: tuple[Protected, ...]) -> bool:
    try:
        resolve_grants([], [str(path)], folder=Path("/"), protected=protected)
    except GrantError:
        return False
    return True


def loaded() -> set[Path]:
    """Folders of every module's file, of every package, and of the interpreter."""
    found = {Path(each) for each in sys.path if each and Path(each).exists() and Path(each) != Path.cwd()}
    found |= {
        Path(sys.prefix),
        Path(sys.base_prefix),
        Path(sys.executable).parent,
        Path(sys.executable).resolve().parent,
    }
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and Path(file).is_absolute():
            found.add(Path(file).parent)
            found.add(Path(os.path.realpath(file)).parent)
        found |= {Path(each) for each in getattr(module, "__path__", ()) if Path(each).is_dir()}
    return {each if each.is_dir() else each.parent for each in found}


def test_no_folder_of_a_module_or_of_the_search_path_can_be_granted_for_writing(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    protected = own(tmp_path)
    folders = loaded()
    assert len(folders) > 50
    assert [str(each) for each in sorted(folders) if taken(each, protected)] == []
    assert taken(tmp_path / "data", protected)


@pytest.mark.parametrize(
    "file", [fumehood.v1.__path__[0], fumehood_sandbox.__file__, fumehood_sdk.__file__, fumehood_server.__file__]
)
def test_neither_a_distribution_nor_what_is_around_it_can_be_granted_for_writing(tmp_path: Path, file: str) -> None:
    protected = own(tmp_path)
    package = Path(file) if Path(file).is_dir() else Path(file).parent
    assert not taken(package, protected)
    assert not taken(package.parent, protected)
    assert not taken(package.parent.parent, protected)
    resolve_grants([str(package)], [], folder=Path("/"), protected=protected)  # for reading it can


def test_site_packages_and_the_folder_of_bubblewrap_cannot_be_granted_for_writing(tmp_path: Path) -> None:
    protected = own(tmp_path)
    program = shutil.which("bwrap")
    folders = [*site.getsitepackages(), *([os.path.dirname(program)] if program else [])]  # noqa: PTH120
    assert not any(taken(Path(each), protected) for each in folders)


def test_a_folder_that_programs_are_looked_for_in_is_refused_and_one_within_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin" / "data").mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    protected = own(tmp_path)
    assert not taken(tmp_path / "bin", protected)
    assert taken(tmp_path / "bin" / "data", protected)


def test_in_a_current_folder_that_is_imported_from_only_what_has_a_modules_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "notes"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    protected = own(tmp_path / "elsewhere")
    assert not taken(tmp_path, protected)
    assert not taken(tmp_path / "json", protected)
    assert taken(tmp_path / "notes", protected)


def test_a_package_without_a_file_and_a_module_behind_a_link_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site" / "spread_wide").mkdir(parents=True)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "linked_one.py").touch()
    (tmp_path / "site" / "linked_one.py").symlink_to(tmp_path / "store" / "linked_one.py")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    import linked_one  # type: ignore[import-not-found]  # noqa: PLC0415 - made above
    import spread_wide  # type: ignore[import-not-found]  # noqa: PLC0415 - made above

    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(tmp_path / "site")])
    assert linked_one.__file__
    assert list(spread_wide.__path__)
    protected = own(tmp_path / "elsewhere")
    assert not taken(tmp_path / "store", protected)
    assert not taken(tmp_path / "site" / "spread_wide", protected)
    for name in ("linked_one", "spread_wide"):
        monkeypatch.delitem(sys.modules, name)


def test_libraries_and_settings_that_the_environment_names_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("libraries/deeper", "trust", "tls", "temporary/deeper", "data"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/libraries:")
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "trust"))
    monkeypatch.setenv("OPENSSL_CONF", str(tmp_path / "tls/openssl.cnf"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    protected = own(tmp_path / "elsewhere")
    for name in ("libraries", "trust", "tls", "temporary"):
        assert not taken(tmp_path / name, protected)
    for name in ("libraries/deeper", "temporary/deeper", "data"):
        assert taken(tmp_path / name, protected)


def test_the_copies_that_plugins_run_from_are_neither_read_nor_written_by_any_plugin(tmp_path: Path) -> None:
    (tmp_path / "dice").mkdir()
    (tmp_path / "dice/plugin.toml").touch()
    stored = PluginStore(tmp_path / "state/plugins").put(tmp_path / "dice")
    protected = own(tmp_path)
    for path in (stored.path, stored.path.parent, tmp_path / "state", tmp_path):
        assert not taken(path, protected)
        with pytest.raises(GrantError, match="state_dir"):
            resolve_grants([str(path)], [], folder=Path("/"), protected=protected)
    (tmp_path / "data").mkdir()
    assert taken(tmp_path / "data", protected)


def test_every_file_that_this_process_has_mapped_or_open_as_code_is_protected(tmp_path: Path) -> None:
    protected = own(tmp_path)
    mapped = {line.split(maxsplit=5)[5] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    folders = {Path(each).parent for each in mapped if Path(each).is_file() and ".so" in each}
    assert len(folders) > 3
    assert [str(each) for each in sorted(folders) if taken(each, protected)] == []


def test_the_folder_of_the_socket_is_refused_and_one_beside_the_socket_is_not(tmp_path: Path) -> None:
    (tmp_path / "run" / "notes").mkdir(parents=True)
    (tmp_path / "dice").mkdir()
    config = tmp_path / "fumehood.toml"
    text = '[server]\nlisten = ["unix:run/fumehood.sock"]\n[[plugin]]\npath = "dice"\nwrite = ["{}"]\n'
    config.write_text(text.format("run"))
    with pytest.raises(ConfigError, match="overlaps the folder of the sidecar's socket"):
        load_config(config)
    config.write_text(text.format("run/notes"))
    assert load_config(config).plugins[0].grants.write == (str(tmp_path / "run" / "notes"),)


def test_what_is_protected_holds_no_path_within_another() -> None:
    paths = code_paths().paths
    assert not [each for each in paths if any(each.is_relative_to(other) for other in paths if other != each)]
    assert all(each.is_absolute() for each in (*paths, *searched_folders().paths))
