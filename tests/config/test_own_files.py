"""What the sidecar runs, connects by and reads as settings is written by no plugin, and its keys are read by none."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fumehood_sandbox import Level
from fumehood_server.cli.commands.serve import _with_listen, _with_plugins
from fumehood_server.cli.dev_sidecar import DevGrants, DevSecret, DevSidecar
from fumehood_server.cli.failure import CommandError
from fumehood_server.config import SidecarConfig, load_config
from fumehood_server.config.effective import effective_document
from fumehood_server.config.library_settings import credential_paths
from fumehood_server.errors import ConfigError

from tests.cli.command import environment, fumehood
from tests.plugins.support import cli

PLUGIN = '[[plugin]]\npath = "dice"\nmax_side_effects = "write"\n{} = ["{}"]\n'


def load(folder: Path, text: str, key: str, path: str | Path) -> None:
    (folder / "fumehood.toml").write_text(text + PLUGIN.format(key, path))
    load_config(folder / "fumehood.toml")


def refused(folder: Path, text: str, key: str, path: str | Path) -> str:
    """The problem with a grant; empty where it is taken."""
    try:
        load(folder, text, key, path)
    except ConfigError as error:
        return error.problem if error.key == f"plugin.0.{key}.0" else f"{error.key} is at fault"
    return ""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a home that has nothing in it."""
    for name in ("home", "bin/deeper", "conf/keys", "data"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("bin/send", "conf/key", "conf/keys/key", "data/note"):
        (tmp_path / name).touch()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        '["{}/bin/send"]',
        '["bin/send", "now"]',
        '["send"]',
        '["sh", "bin/send"]',
        '["sh", "{}/bin/send"]',
        '["sh", "-c", "exec {}/bin/send --now"]',
        '["env", "HOOK={}/bin/send", "true"]',
        '["run", "--file=bin/send"]',
        '["run", "bin/missing"]',
        '["git", "-C", "bin"]',
    ],
)
def test_the_folder_of_what_takes_checkpoints_is_refused_and_one_deeper_is_not(
    folder: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command == '["send"]':
        monkeypatch.setenv("PATH", "bin")  # from the configuration's folder, which the command runs in
    text = f"[journal.checkpoints]\ncommand = {command.format(folder)}\n"
    assert "for checkpoints" in refused(folder, text, "write", "bin")
    assert refused(folder, text, "write", "bin/deeper") == ""
    assert refused(folder, text, "read", "bin") == ""


def test_a_program_behind_a_symlink_is_protected_at_both_ends(folder: Path) -> None:
    (folder / "links").mkdir()
    (folder / "links/send").symlink_to(folder / "bin/send")
    text = '[journal.checkpoints]\ncommand = ["links/send", "https://a.test/x/y", "-", "/", "plain"]\n'
    assert refused(folder, text, "write", "links")
    assert refused(folder, text, "write", "bin")
    assert refused(folder, text, "write", "data") == ""


@pytest.mark.parametrize("name", ["sslkey", "passfile"])
def test_keys_and_passwords_of_the_database_are_neither_read_nor_written(folder: Path, name: str) -> None:
    text = f'[journal]\nstore = "postgresql://db.test/journal?{name}={folder}/conf%2Fkey"\n'
    for key, path in (("read", "conf/key"), ("read", "conf"), ("write", "conf")):
        assert "connection to the database" in refused(folder, text, key, path)
        assert refused(folder, text, key, "data") == ""


@pytest.mark.parametrize("name", ["sslrootcert", "sslcert", "sslcrl", "host"])
def test_what_says_who_the_database_is_is_not_written_and_can_be_read(folder: Path, name: str) -> None:
    target = f"{folder}/conf" if name == "host" else f"{folder}/conf/key"
    text = f'[journal]\nstore = "postgresql:///journal?{name}={target}"\n'
    assert "database" in refused(folder, text, "write", "conf")
    assert refused(folder, text, "read", "conf/key") == ""
    assert refused(folder, text, "write", "data") == ""


def test_what_variables_services_and_the_home_folder_name_counts_for_a_database_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = folder / "conf/services"
    service.write_text(f"# mine\n[other]\nsslkey = {folder}/data/note\n[mine]\nsslkey = {folder}/conf/keys/key\n")
    (folder / "home/.pgpass").touch()
    (folder / "home/notes").mkdir()
    monkeypatch.setenv("PGSERVICEFILE", str(service))
    text = '[journal]\nstore = "postgresql://db.test/journal?service=mine"\n'
    for key, path in (("read", "conf/keys/key"), ("write", "conf/keys"), ("read", service), ("read", "home/.pgpass")):
        assert "database" in refused(folder, text, key, path), path
        assert refused(folder, "", key, path) == "", path
    monkeypatch.setenv("PGSSLROOTCERT", str(folder / "conf/key"))
    assert refused(folder, text, "write", "conf")
    assert refused(folder, text, "read", "home/notes") == ""
    assert refused(folder, text, "read", "data/note") == "", "that is another service's"


def test_a_password_in_the_url_makes_the_configuration_unreadable(folder: Path) -> None:
    text = '[journal]\nstore = "postgresql://me{}@db.test/journal"\n'
    assert "configuration" in refused(folder, text.format(":word"), "read", "fumehood.toml")
    assert refused(folder, text.format(""), "read", "fumehood.toml") == ""


@pytest.mark.parametrize("place", ["dice", "/etc/ssl/certs"])
@pytest.mark.parametrize(
    "text",
    [
        '[journal]\nstore = "postgresql://db.test/journal?sslkey={}/k"\n',
        '[journal]\nstore = "postgresql://db.test/journal"\npassword = {{ file = "{}/k" }}\n',
        '[server.tls]\ncertificate = "conf/key"\nkey = "{}/k"\n',
    ],
)
def test_no_key_lies_where_sandboxes_are_shown(folder: Path, text: str, place: str) -> None:
    path = folder / place  # an absolute one stays what it is
    (folder / "dice").mkdir()
    with pytest.raises(ConfigError, match="which sandboxes are shown"):
        load(folder, text.format(path), "read", "data")
    load(folder, text.format(folder / "conf"), "read", "data")


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ('[server.tls]\ncertificate = "conf/key"\nkey = "conf/keys/key"\n', ["conf/key", "conf/keys/key"]),
        ('[server]\ntoken_file = "conf/key"\n', ["conf/key"]),
        ('[secrets.KEY]\nfile = "conf/key"\n', ["conf/key"]),
    ],
)
def test_what_callers_are_known_by_is_neither_read_nor_written(folder: Path, text: str, files: list[str]) -> None:
    for each in files:
        assert "which no plugin may read" in refused(folder, text, "read", each)
        assert "which no plugin may write" in refused(folder, text, "write", Path(each).parent)
    assert refused(folder, text, "read", "data/note") == ""


def test_tokens_behind_a_symlink_of_the_state_folder_are_not_read(folder: Path) -> None:
    (folder / ".fumehood").mkdir()
    (folder / ".fumehood/tokens.json").symlink_to(folder / "conf/key")
    assert "tokens" in refused(folder, "", "read", "conf/key")
    assert refused(folder, "", "read", "conf/keys/key") == ""


@pytest.mark.parametrize("name", ["fumehood.toml", "fumehood.lock", "state", "run", "dice"])
def test_a_symlink_that_leads_to_what_the_sidecar_reads_or_listens_on_cannot_be_replaced(
    folder: Path, name: str
) -> None:
    turned, kept = folder / "turned", folder / "kept"
    turned.mkdir()
    (kept / "run").mkdir(parents=True)
    for each in ("dice", "state"):
        (kept / each).mkdir()
    (kept / "fumehood.lock").touch()
    text = '[server]\nstate_dir = "{state}"\nlisten = ["unix:{run}/f.sock"]\n' + PLUGIN.replace('"dice"', '"{dice}"', 1)
    places = {each: str(kept / each) for each in ("state", "run", "dice")}
    config = kept / "fumehood.toml"
    if name in places:
        (turned / name).symlink_to(kept / name)
        places[name] = str(turned / name)
    elif name == "fumehood.lock":
        (kept / name).rename(turned / "real")
        (kept / name).symlink_to(turned / "link")
        (turned / "link").symlink_to(turned / "real")
    else:
        (turned / name).symlink_to(config)
    named = turned / name if name == "fumehood.toml" else config
    config.write_text(text.replace("{} = [", "write = [").replace('["{}"]', f'["{folder}/data"]').format(**places))
    load_config(named)
    config.write_text(config.read_text().replace(f"{folder}/data", str(turned)))
    with pytest.raises(ConfigError, match="which no plugin may write"):
        load_config(named)


@pytest.mark.parametrize(
    ("address", "is_refused"),
    [
        ("data/f.sock", True),
        ("data/run/f.sock", True),
        ("links/to-link/f.sock", True),
        ("run/f.sock", False),
        ("links/run/f.sock", False),
    ],
)
def test_sockets_of_the_command_line_are_held_to_the_check_of_the_file_s(
    folder: Path, monkeypatch: pytest.MonkeyPatch, address: str, *, is_refused: bool
) -> None:
    links_to_run(folder)
    monkeypatch.chdir(folder)
    grant = PLUGIN.format("write", "data")
    config = folder / "fumehood.toml"
    config.write_text(f'[server]\nlisten = ["unix:{address}"]\n{grant}')
    if is_refused:
        with pytest.raises(ConfigError, match="which no plugin may write"):
            load_config(config)
    else:
        load_config(config)
    config.write_text(grant)
    taken, done = load_config(config), with_listen(load_config(config), address)
    if is_refused:
        assert done.startswith("--listen: ")
        assert "the folder of the sidecar's socket" in done
    else:
        assert done == f"unix:{folder / address}"
    assert with_listen(taken, "") == f"unix:{folder}/.fumehood/fumehood.sock"


def links_to_run(folder: Path) -> None:
    """One link in `data`, which a plugin may write, and others in `links`, of which one leads there."""
    for name in ("run", "links"):
        (folder / name).mkdir()
    (folder / "data/run").symlink_to("../run")
    (folder / "links/run").symlink_to("../run")
    (folder / "links/to-link").symlink_to("../data/run")


def with_listen(config: SidecarConfig, address: str) -> str:
    """What the sidecar listens on, or why it doesn't."""
    try:
        (listen,) = _with_listen(config, (f"unix:{address}",) if address else ()).server.listen
    except CommandError as error:
        return error.what
    return listen.target


def test_plugins_of_the_command_line_are_held_to_the_checks_of_the_file_s(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links_to_run(folder)
    monkeypatch.chdir(folder)
    for name in ("run/p", "conf/.fumehood"):
        (folder / name).mkdir()
    path = folder / "fumehood.toml"
    grant = PLUGIN.format("write", "data")

    def refusal(text: str, plugin: str) -> str:
        path.write_text(text + grant)
        try:
            config = _with_plugins(load_config(path), (Path(plugin),))
        except CommandError as error:
            return error.what
        assert config.plugins[-1].path == (folder / plugin).resolve()
        return ""

    assert "a symlink to the folder of a plugin" in refusal("", "data/run/p")
    assert refusal("", "links/run/p") == ""
    keyed = '[secrets.KEY]\nfile = "conf/key"\n'
    assert "the file of the secret KEY" in refusal(keyed, "conf")
    assert refusal(keyed, "run/p") == ""
    assert "state_dir" in refusal('[server]\nstate_dir = "conf/state"\n', "conf")
    assert refusal('[server]\nstate_dir = "conf/.fumehood"\n', "conf") == ""


def test_a_plugin_is_not_added_with_a_grant_through_a_symlink_that_another_can_replace(folder: Path) -> None:
    links_to_run(folder)
    path = folder / "fumehood.toml"
    path.write_text(PLUGIN.format("write", "data"))
    cli(folder / "new")
    done = fumehood("plugin", "add", "new", "--read", "data/run", "--yes", folder=folder)
    assert done.status == 2, done.stderr
    assert "--read: " in done.stderr
    assert "leads through the symlink" in done.stderr
    done = fumehood("plugin", "add", "new", "--read", "links/run", "--yes", folder=folder)
    assert done.status == 0, done.stderr
    assert 'read = ["run"]' in path.read_text()


@pytest.mark.parametrize("option", ["read", "write", "secret"])
def test_a_sidecar_for_development_is_granted_paths_as_they_are_named(folder: Path, option: str) -> None:
    links_to_run(folder)
    (folder / "run/key").touch()

    def load_granted(within: Path) -> None:
        secret = within / "key" if option == "secret" else folder / "conf/key"
        grants = DevGrants(
            max_side_effects=Level.WRITE,
            read=[within] if option == "read" else [],
            write=[folder / "data", *([within] if option == "write" else [])],
            secrets=[DevSecret(name="KEY", file=secret)],
        )
        private = folder / "private"
        private.mkdir(exist_ok=True)
        DevSidecar(private, folder / "dice", grants, lambda _: None, environments=folder / "environments")
        load_config(private / "fumehood.toml")

    with pytest.raises(ConfigError, match="leads through the symlink"):
        load_granted(folder / "data/run")
    load_granted(folder / "links/run")


@pytest.mark.parametrize(
    ("variable", "secret"),
    [
        ("GCONV_PATH", False),
        ("GRPC_SYSTEM_SSL_ROOTS_DIR", False),
        ("LD_AUDIT", False),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", False),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", True),
        ("OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY", True),
        ("PIP_CONFIG_FILE", True),
        ("PIP_FIND_LINKS", False),
        ("PYTHONSTARTUP", False),
        ("SSLKEYLOGFILE", True),
        ("UV_CONFIG_FILE", True),
    ],
)
def test_files_that_the_environment_names_for_libraries_and_installers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str, *, secret: bool
) -> None:
    assert refused(folder, "", "write", "conf") == ""
    monkeypatch.setenv(variable, str(folder / "conf/key"))
    assert bool(refused(folder, "", "read", "conf/key")) is secret
    assert refused(folder, "", "write", "conf")
    assert refused(folder, "", "write", "data") == ""


@pytest.mark.parametrize("name", [".config/uv/uv.toml", ".config/pip/pip.conf", ".pip/pip.conf", ".netrc"])
def test_settings_of_installers_in_the_home_folder(folder: Path, name: str) -> None:
    file = folder / "home" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    assert credential_paths() == ()
    assert refused(folder, "", "write", file.parent)
    assert refused(folder, "", "read", file.parent) == ""
    file.touch()
    assert "credentials" in refused(folder, "", "read", file)
    (folder / "home/notes").mkdir()
    assert refused(folder, "", "write", "home/notes") == ""


ENTRY = "import sys, helper\nopen({marker!r}, 'w').close()\nasync def run(call, next):\n    return await next()\n"
PROGRAM = """
import sys
from importlib.util import spec_from_file_location
from pathlib import Path
from fumehood_server.cli import main
package, source, *arguments = sys.argv[1:]
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == package:
            return spec_from_file_location(name, Path(source) / "__init__.py", submodule_search_locations=[source])
sys.meta_path.append(Finder())
sys.argv = ["fumehood", *arguments]
main()
"""


@pytest.mark.parametrize("found", ["entry", "helper"])
def test_middleware_that_an_import_hook_finds_is_not_written_at_the_first_start_either(
    folder: Path, found: str
) -> None:
    """An editable installation: the package lies on no path, and one that it imports is known once it is imported."""
    site, source, marker = folder / "site", folder / "project" / found, folder / "marker"
    source.mkdir(parents=True)
    about = site / "house-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: house\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[fumehood.middleware]\nhouse = entry:run\n")
    for name in ("entry", "helper"):
        code = ENTRY.format(marker=str(marker)) if name == "entry" else ""
        (source / "__init__.py" if name == found else site / f"{name}.py").write_text(code)
    path = folder / "fumehood.toml"
    path.write_text(PLUGIN.format("write", source) + '[[middleware]]\nname = "house"\n')
    command = [sys.executable, "-c", PROGRAM, found, str(source), "serve", "--config", str(path)]
    env = environment(more={"PYTHONPATH": str(site)})
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env, cwd=folder)
    assert done.returncode == 2, done.stderr
    assert "overlaps the sidecar's own code" in done.stderr
    assert "fumehood.toml:" in done.stderr
    assert marker.exists() is (found == "helper"), "what could be known is refused before it runs"


def test_what_is_protected_follows_from_the_settings_and_is_none(folder: Path) -> None:
    path = folder / "fumehood.toml"
    path.write_text('[server]\ntoken_file = "conf/tokens"\n')
    config = load_config(path)
    assert {folder / "conf" / "tokens", path} <= {each.path for each in config.protected}
    without = replace(config, protected=())
    assert (without, effective_document(without)) == (config, effective_document(config))
