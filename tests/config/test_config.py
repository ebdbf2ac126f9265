from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
from fumehood_sandbox import Level
from fumehood_server.config.config import LimitsConfig
from fumehood_server.config.listen import Listen, SocketAccess
from fumehood_server.config.load import find_config, load_config
from fumehood_server.errors import ConfigError
from fumehood_server.model.plugin import ToolGrant
from fumehood_server.model.tool import DeclaredLimits, Permission

from tests.plugins.support import configure

FULL = """\
[server]
listen = ["unix:run/s.sock", "127.0.0.1:7430", "[::1]:0"]
allow_anonymous = true
state_dir = "state"
idle_stop_s = 5
max_concurrent_calls = 7
max_arguments_bytes = 2048
drain_s = 1.5
log_level = "debug"
reflection = false

[limits.default]
memory_bytes = 1073741824
output_bytes = 2048
[limits.cap]
cpu_s = 30
timeout_s = 60

[[plugin]]
path = "plugins/files"
max_side_effects = "write"
read = ["data", "./data", "data/one.txt"]
write = ["notes"]
hosts = ["API.example.com:443", "api.example.com:443", "[::1]:80"]
deny_hosts = ["*.internal.example.com"]
max_workers = 3

[plugin.tools.write_file]
permission = "allow"
timeout_s = 2

[[plugin]]
path = "plugins/dice"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("data", "notes", "notes/sub", "plugins/files", "plugins/dice"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "data/one.txt").write_text("1")
    return tmp_path


def test_every_key_arrives_typed_and_resolved(folder: Path) -> None:
    config = load_config(configure(folder, FULL))
    server = config.server
    assert server.listen == (
        Listen(path=folder / "run/s.sock"),
        Listen(host="127.0.0.1", port=7430),
        Listen(host="::1", port=0),
    )
    assert [each.target for each in server.listen] == [f"unix:{folder}/run/s.sock", "127.0.0.1:7430", "[::1]:0"]
    assert (server.state_dir, config.lock_path) == (folder / "state", folder / "fumehood.lock")
    assert (server.idle_stop_s, server.max_concurrent_calls, server.max_arguments_bytes) == (5.0, 7, 2048)
    assert (server.drain_s, server.log_level, server.reflection) == (1.5, "debug", False)
    files, dice = config.plugins
    assert files.path == folder / "plugins/files"
    assert files.grants.max_side_effects is Level.WRITE
    assert files.grants.read == (str(folder / "data"), str(folder / "data/one.txt"))
    assert files.grants.write == (str(folder / "notes"),)
    assert files.max_workers == 3
    assert files.tools == {"write_file": ToolGrant(permission=Permission.ALLOW, timeout_s=2.0)}
    assert FULL.splitlines()[files.tool_lines["write_file"] - 1] == "[plugin.tools.write_file]"
    assert dice.grants.max_side_effects is Level.READ


def test_without_a_file_all_is_default_and_nothing_is_granted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert find_config(None) is None
    config = load_config(None)
    assert config.path is None
    assert config.plugins == ()
    assert config.server.listen == (Listen(path=folder / ".fumehood/fumehood.sock"),)
    assert config.server.reflection


def test_the_file_of_the_working_directory_is_found_and_an_explicit_one_must_exist(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = configure(folder, "")
    monkeypatch.chdir(folder)
    assert find_config(None) == path
    assert find_config(path) == path
    with pytest.raises(ConfigError, match="no such file"):
        find_config(folder / "other.toml")


P = '[[plugin]]\npath = "plugins/dice"\n'


@pytest.mark.parametrize(
    ("text", "line", "problem", "hint"),
    [
        ("[servr]\n", 1, "unknown key `servr`", 'did you mean "server"?'),
        ("[server]\nlisen = []\n", 2, "unknown key `lisen` in [server]", 'did you mean "listen"?'),
        ("[server]\nlisten = []\n", 2, "`listen` in [server]", ""),
        ('[server]\nlisten = "unix:x"\n', 2, "`listen` in [server] must be an array", ""),
        ('[server]\nlisten = [\n "unix:x",\n 3]\n', 4, "`listen[1]` in [server] must be a string", ""),
        ('[server]\nlisten = ["unix:x",\n "unix:./x"]\n', 3, "is named twice", "remove one"),
        ('[server]\nlog_level = "warn"\n', 2, 'unknown log level "warn"', 'did you mean "warning"?'),
        ("[server]\nlog_level = 3\n", 2, "the log level must be a string", 'one of "debug"'),
        ('[server]\ndrain_s = "1"\n', 2, "`drain_s` in [server] must be a number", ""),
        ("[server]\ndrain_s = nan\n", 2, "`drain_s`", ""),
        ("[journal]\nkeep_events_d = 0.5\n", 2, "`keep_events_d` in [journal] is less than", "at least as long"),
        ("[server]\nreflection = 1\n", 2, "must be true or false", ""),
        ("[server]\nmax_concurrent_calls = 0\n", 2, "must be at least 1, not 0", ""),
        ("[server]\nmax_concurrent_calls = 1.0\n", 2, "must be a whole number", ""),
        ("[server]\nmax_concurrent_calls = true\n", 2, "must be a whole number", ""),
        ("[server]\nmax_arguments_bytes = 99999999\n", 2, "must be at most 3145728", ""),
        ("[limits]\n[limits.defalt]\n", 2, "unknown key `defalt` in [limits]", 'did you mean "default"?'),
        ("[limits.cap]\nmemory = 1\n", 2, "unknown key `memory`", 'did you mean "memory_bytes"?'),
        ("[limits.cap]\ntimeout_s = 4000\n", 2, "must be at most 3600", ""),
        ("[limits.cap]\nprocesses = 5\n[limits.default]\nprocesses = 6\n", 4, "above its cap of 5", "lower it"),
        ('[plugin]\npath = "x"\n', 1, "`plugin` must be an array", "write [[plugin]]"),
        ('\n[[plugin]]\nread = ["data"]\n', 2, "`path` is missing in [[plugin]]", ""),
        (P + P, 4, "is named twice", "one [[plugin]] for each folder"),
        (P + 'max_side_effects = "wirte"\n', 3, 'unknown side-effect level "wirte"', 'did you mean "write"?'),
        (P + 'hosts = ["example.com"]\n', 3, "names no port", "api.example.com:443"),
        (P + 'hosts = [\n"a.example:1",\n"*.com:443"]\n', 5, "whole top-level domain", ""),
        (P + 'hosts = ["127.1:80"]\n', 3, '`hosts`: "127.1:80"', ""),
        (P + 'hosts = "example.com:443"\n', 3, "must be an array", ""),
        (P + 'deny_hosts = ["exa mple.com"]\n', 3, '`deny_hosts`: "exa mple.com"', ""),
        (P + '[plugin.tools.roll]\nhosts = ["example.com:0"]\n', 4, "is no port", ""),
        ('[egress]\nallow_private = ["10.0.0.0/8"]\n', 2, "is not one IP address", "no ranges"),
        ('[egress]\nallow_private = ["10.0.0.1",\n"fe80::1%eth0"]\n', 3, "names an interface", ""),
        ('[egress]\nallow_private = ["db.test=10.0.0.1"]\n', 2, "is for one name", "[[plugin]]"),
        (P + 'allow_private = ["10.0.0.1",\n"db.test=10.0.0.0/8"]\n', 4, "is not one IP address", "no ranges"),
        (P + 'allow_private = ["10.0.0.2=10.0.0.1"]\n', 3, "has an address before =", "NAME=ADDRESS"),
        (P + 'allow_private = ["db.test:80=10.0.0.1"]\n', 3, '`allow_private`: "db.test:80', "no ports"),
        ("[egress]\nmax_redirect = 1\n", 2, "unknown key `max_redirect`", 'did you mean "max_redirects"?'),
        ("[egress]\ntimeout_s = 0\n", 2, "must be more than 0", ""),
        (P + "max_workers = 0\n", 3, "must be at least 1", ""),
        (P + "one_process = true\nmax_workers = 2\n", 4, "contradicts `one_process`", "remove one of them"),
        (P + "one_process = true\n[plugin.tools.roll]\nhosts = []\n", 5, "a second process", "[[plugin]]"),
        (P + '[plugin.tools.roll]\npermision = "deny"\n', 4, "`permision` in [plugin.tools.roll]", '"permission"'),
        (P + '[plugin.tools.roll]\npermission = "alow"\n', 4, 'unknown permission "alow"', 'did you mean "allow"?'),
        (P + "[plugin.tools.roll]\ntimeout_s = 0\n", 4, "must be more than 0", ""),
        (P + 'read = [\n"data",\n"absent"]\n', 5, "absent\" can't be granted: No such file", "create it first"),
        (P + 'read = ["/"]\n', 3, "the whole file system can't be granted", ""),
        (P + 'read = ["/proc/self"]\n', 3, "is the kernel's", ""),
        (P + 'read = ["/sys"]\n', 3, "is the kernel's", ""),
        (P + 'write = ["/dev/shm"]\n', 3, "is the kernel's", ""),
        (P + 'read = ["."]\n', 3, "overlaps the sidecar's state_dir", "narrower"),
        (P + 'write = ["."]\n', 3, "overlaps the sidecar's state_dir", "narrower"),
        (P + 'write = ["plugins"]\n', 3, "overlaps the folder of a plugin", "narrower"),
        (P + 'write = ["/etc"]\n', 3, "the system's own folder", ""),
        (P + 'write = ["data/one.txt"]\n', 3, "is not a folder", "grant the folder around it"),
        (P + 'write = ["notes", "notes/sub"]\n', 3, "lies beneath", "remove it"),
        (P + 'read = ["notes/sub"]\nwrite = ["notes"]\n', 3, "which is granted for writing", ""),
        (P + 'read = ["notes"]\nwrite = ["notes"]\n', 3, "which is granted for writing", ""),
        (P + 'read = [""]\n', 3, "an empty path", ""),
    ],
)
def test_a_slip_is_refused_with_file_line_and_what_to_write(
    folder: Path, text: str, line: int, problem: str, hint: str
) -> None:
    path = configure(folder, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: "), message
    assert problem in message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "address", ["0.0.0.0:1", "192.0.2.1:80", "[::]:1", "example.com:80", ":80", "127.0.0.1", "127.0.0.1:99999",
                "unix:", "unix-abstract:x", "[127.0.0.1:1", "unix:" + "x" * 200]
)  # fmt: skip
def test_an_address_that_cannot_be_served_is_refused(folder: Path, address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(configure(folder, f'[server]\nlisten = [\n"{address}"]\n'))
    assert caught.value.line == 3


def test_a_symlink_is_granted_as_what_it_leads_to(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "data")
    config = load_config(configure(folder, P + 'read = ["link"]\n'))
    assert config.plugins[0].grants.read == (str(folder / "data"),)
    (folder / "sneaky").symlink_to("/proc")
    with pytest.raises(ConfigError, match="the kernel's"):
        load_config(configure(folder, P + 'read = ["sneaky"]\n'))
    (folder / "round").symlink_to("round")
    with pytest.raises(ConfigError, match="can't be granted"):
        load_config(configure(folder, P + 'read = ["round"]\n'))


def test_a_symlink_that_a_plugin_could_have_left_is_not_followed(folder: Path) -> None:
    """Else its text would decide what another plugin is granted after a restart."""
    other = '[[plugin]]\npath = "plugins/files"\nmax_side_effects = "write"\nwrite = ["notes"]\n'
    text = P + 'read = ["notes/sub/deep"]\n' + other
    (folder / "notes/sub/deep").mkdir()
    assert load_config(configure(folder, text)).plugins[0].grants.read == (str(folder / "notes/sub/deep"),)
    (folder / "notes/sub").rename(folder / "notes/old")
    for target in ("../data/../notes/old", str(folder / "notes/old")):
        (folder / "notes/sub").symlink_to(target)
        with pytest.raises(ConfigError, match="which a plugin may write"):
            load_config(configure(folder, text))
        (folder / "notes/sub").unlink()


def test_the_folder_of_another_plugin_cannot_be_written(folder: Path) -> None:
    text = P + '[[plugin]]\npath = "plugins/files"\nwrite = ["{}"]\n'
    load_config(configure(folder, text.format("notes")))
    with pytest.raises(ConfigError, match="the folder of a plugin"):
        load_config(configure(folder, text.format("plugins/dice")))


def test_the_sidecars_own_code_cannot_be_written(folder: Path) -> None:
    site = sysconfig.get_path("purelib")
    load_config(configure(folder, P + f'read = ["{site}"]\n'))
    with pytest.raises(ConfigError, match=r"the sidecar's own code|the system's own"):
        load_config(configure(folder, P + f'write = ["{site}"]\n'))


def test_limits_are_declared_or_default_and_never_above_the_cap(folder: Path) -> None:
    limits: LimitsConfig = load_config(configure(folder, FULL)).limits
    merged, own = limits.merge(DeclaredLimits())
    assert (merged.memory_bytes, merged.cpu_s) == (1073741824, 30)
    assert (own.output_bytes, own.log_bytes_per_second) == (2048, 1024**2)
    merged, own = limits.merge(
        DeclaredLimits(memory_bytes=2**50, cpu_s=10, output_bytes=2**40, log_bytes_per_second=2**40)
    )
    assert (merged.memory_bytes, merged.cpu_s) == (limits.cap.memory_bytes, 10)
    assert (own.output_bytes, own.log_bytes_per_second) == (3 * 1024**2, 64 * 1024**2)


def test_sockets_are_the_owners_alone_unless_a_mode_or_a_group_is_named(folder: Path) -> None:
    def access(lines: str) -> SocketAccess:
        return load_config(configure(folder, f"[server]\n{lines}\n")).server.socket_access

    assert access("") == SocketAccess(mode=0o600)
    assert access('socket_mode = "0666"') == SocketAccess(mode=0o666)
    assert access('socket_group = "54321"') == SocketAccess(mode=0o660, group_id=54321, group="54321")
    root = SocketAccess(mode=0o666, group_id=0, group="root")
    assert access('socket_group = "root"\nsocket_mode = "0666"') == root


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('socket_mode = "0777"', "unknown socket mode"),
        ("socket_mode = 660", "the socket mode must be a string"),
        ('socket_group = "no-such-group"', "there is no group"),
        ('socket_group = "root"\nsocket_mode = "0600"', "nobody of `socket_group` may connect"),
    ],
)
def test_a_wrong_socket_mode_or_group_is_refused_with_its_line(folder: Path, lines: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        load_config(configure(folder, f"[server]\n{lines}\n"))
    assert caught.value.line == 1 + len(lines.splitlines())


def test_state_within_a_plugin_is_refused_unless_it_is_no_part_of_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "dice").mkdir()
    path = tmp_path / "fumehood.toml"
    text = '[server]\nstate_dir = "{}"\nlisten = ["unix:s"]\n[[plugin]]\npath = "dice"\n'
    path.write_text(text.format("dice/state"))
    with pytest.raises(ConfigError, match="lies in the plugin's folder") as caught:
        load_config(path)
    assert caught.value.line == 2
    for allowed in ("state", "dice/.fumehood", "dice-state"):
        path.write_text(text.format(allowed))
        assert load_config(path).server.state_dir == tmp_path / allowed
