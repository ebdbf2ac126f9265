"""A host at which a plugin would reach the sidecar itself is refused when the configuration is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fumehood_server.config import load_config
from fumehood_server.config.listen import Listen
from fumehood_server.config.served import checked
from fumehood_server.errors import ConfigError

from tests.cli.command import fumehood

pytestmark = pytest.mark.promise("S813")

SERVER = '[server]\nlisten = ["unix:fumehood.sock", "{}"]\nallow_anonymous = true\n'
LISTENERS = {
    "`listen` in [server]": SERVER.format("127.0.0.1:7430"),
    "`listen` in [mcp]": '[mcp]\nlisten = "127.0.0.1:7430"\nallow_anonymous = true\n',
    "`listen` in [approvals.webhook]": (
        '[approvals.webhook]\nlisten = "127.0.0.1:7430"\nreply_secret = "KEY"\ncaller = "chat"\n'
        '[secrets.KEY]\nenv = "KEY"\n[[caller]]\nname = "chat"\napprove = ["*"]\n'
    ),
    "`prometheus` in [telemetry]": '[telemetry]\nprometheus = "127.0.0.1:7430"\n',
}
PLUGIN = '[[plugin]]\npath = "p"\n'


def load(folder: Path, text: str) -> None:
    (folder / "fumehood.toml").write_text(text)
    load_config(folder / "fumehood.toml")


@pytest.mark.parametrize("where", LISTENERS)
def test_every_listener_is_looked_at_and_named_beside_the_grant(tmp_path: Path, where: str) -> None:
    text = LISTENERS[where] + PLUGIN + 'hosts = ["127.0.0.1:{}"]\nallow_private = ["127.0.0.1"]\n'
    load(tmp_path, text.format(7431))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text.format(7430))
    assert where in caught.value.problem
    assert '"127.0.0.1:7430" in `hosts`, and "127.0.0.1" in `allow_private`' in caught.value.problem
    assert caught.value.key == "plugin.0.hosts"


@pytest.mark.parametrize(
    ("listen", "plugin", "reached"),
    [
        ("127.0.0.1:7430", 'hosts = ["in.test:7430"]\nallow_private = ["in.test=127.0.0.1"]', True),
        ("127.0.0.1:7430", 'hosts = ["*.in.test:7430"]\nallow_private = ["a.in.test=127.0.0.1"]', True),
        ("127.0.0.1:7430", 'hosts = ["0.0.0.0:7430"]\nallow_private = ["0.0.0.0"]', True),
        ("127.0.0.1:7430", 'hosts = ["in.test:7430"]\nallow_private = ["in.test=::ffff:127.0.0.1"]', True),
        ("localhost:7430", 'hosts = ["[::1]:7430"]\nallow_private = ["::1"]', True),
        ("[::1]:7430", 'hosts = ["in.test:7430"]\nallow_private = ["in.test=::"]', True),
        ("127.0.0.1:7430", 'allow_private = ["127.0.0.1"]\n[plugin.tools.t]\nhosts = ["127.0.0.1:7430"]', True),
        ("127.0.0.1:7430", 'allow_private = ["127.0.0.1"]\nbuild_hosts = ["127.0.0.1:7430"]', True),
        # What is not let through by another rule, or is at another address.
        ("127.0.0.1:7430", 'hosts = ["127.0.0.1:7430"]', False),
        ("127.0.0.1:7430", 'hosts = ["in.test:7430"]\nallow_private = ["127.0.0.1"]', False),
        ("127.0.0.1:7430", 'hosts = ["127.0.0.2:7430"]\nallow_private = ["127.0.0.2"]', False),
        ("127.0.0.1:7430", 'hosts = ["api.test:7430", "127.0.0.1:80"]\nallow_private = ["127.0.0.1"]', False),
        ("127.0.0.1:7430", 'hosts = ["1.1.1.1:7430"]', False),
    ],
)
def test_what_leads_to_a_listener_is_refused_and_what_does_not_is_taken(
    tmp_path: Path, listen: str, plugin: str, reached: bool
) -> None:
    text = SERVER.format(listen) + PLUGIN + plugin
    if not reached:
        load(tmp_path, text)
        return
    with pytest.raises(ConfigError, match="a plugin may reach port 7430"):
        load(tmp_path, text)


def test_addresses_for_all_plugins_and_of_all_interfaces_count(tmp_path: Path) -> None:
    listen = '[server]\nlisten = ["0.0.0.0:7430"]\n[[caller]]\nname = "a"\n'
    listen += '[server.tls]\ncertificate = "c.pem"\nkey = "k.pem"\n'
    text = f'{listen}[egress]\nallow_private = ["127.0.0.9"]\n{PLUGIN}hosts = ["127.0.0.9:{{}}"]\n'
    load(tmp_path, text.format(7431))
    with pytest.raises(ConfigError, match="which is `listen` in"):
        load(tmp_path, text.format(7430))


def test_what_the_command_line_listens_on_is_looked_at_before_anything_is_served(tmp_path: Path) -> None:
    path = tmp_path / "fumehood.toml"
    path.write_text(f'{PLUGIN}hosts = ["127.0.0.1:7430"]\nallow_private = ["127.0.0.1"]\n')
    listen = ("--listen", "127.0.0.1:7430", "--allow-anonymous")
    done = fumehood("serve", "--config", path, *listen, folder=tmp_path)
    assert done.status == 2
    assert "fumehood.toml:1: a plugin may reach port 7430 of 127.0.0.1" in done.stderr
    assert "listening" not in done.stdout


def test_a_reload_looks_at_what_the_sidecar_listens_on(tmp_path: Path) -> None:
    path = tmp_path / "fumehood.toml"
    path.write_text(f'\n{PLUGIN}hosts = ["127.0.0.1:7430"]\nallow_private = ["127.0.0.1"]\n')
    config = load_config(path)
    assert checked(lambda: config)() is config
    served = replace(config, server=replace(config.server, listen=(Listen(host="127.0.0.1", port=7430),)))
    with pytest.raises(ConfigError, match="may reach port 7430") as caught:
        checked(lambda: served)()
    assert (caught.value.line, caught.value.key) == (2, "plugin.0.hosts")
