"""`fumehood serve` and `plugin dev`: the commands that start something."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fumehood_server.cli.saved_files import is_source

from tests.cli.command import COMMAND, TIMEOUT_S, environment, fumehood, on_terminal
from tests.cli.serving import CODE, running
from tests.sidecar import write_plugin


@pytest.fixture
def short_folder() -> Iterator[Path]:
    # Not pytest's tmp_path: the path of a unix socket may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        yield Path(name)


def test_serve_announces_each_address_serves_a_folder_and_ends_with_status_0(short_folder: Path) -> None:
    plugin = write_plugin(short_folder / "small", "small", CODE)
    addresses = ("--listen", "unix:s", "--listen", "127.0.0.1:0", "--allow-anonymous")
    options = (*addresses, "--plugin", plugin, "--log-format", "json")
    with running("serve", *options, folder=short_folder) as sidecar:
        unix = sidecar.wait_for(r"^listening unix:").split()[1]
        tcp = sidecar.wait_for(r"^listening 127\.0\.0\.1:[1-9]").split()[1]
        for address in (unix, tcp):
            assert fumehood("call", "echo", "text=hi", address=address).stdout == "hi\n"
        assert sidecar.end() == 0


def test_a_plugin_that_is_served_from_its_own_folder_finds_nothing_written_there(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = write_plugin(short_folder / "small", "small", CODE)
    (plugin / "deeper").mkdir()
    state = short_folder / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    before = sorted(plugin.rglob("*"))
    with running("serve", "--plugin", ".", folder=plugin) as sidecar:
        sidecar.wait_for(f"^listening unix:{state}/fumehood/small-[0-9a-f]+/.fumehood/fumehood.sock")
        assert fumehood("call", "echo", "text=hi", folder=plugin).stdout == "hi\n"
        assert fumehood("call", "echo", "text=hi", folder=plugin / "deeper").stdout == "hi\n"
        assert fumehood("tools", folder=short_folder).status == 3
        assert sidecar.end() == 0
    assert sorted(plugin.rglob("*")) == before
    assert [each.name for each in state.glob("fumehood/*/fumehood.lock")] == ["fumehood.lock"]
    # Elsewhere it stays beside the caller, where a configuration would lie.
    with running("serve", "--plugin", "small", folder=short_folder) as sidecar:
        sidecar.wait_for(f"^listening unix:{short_folder}/.fumehood/fumehood.sock")
        assert sidecar.end() == 0


def test_logs_can_be_followed_until_ctrl_c(short_folder: Path) -> None:
    plugin = write_plugin(short_folder / "small", "small", CODE)
    with running("serve", "--plugin", plugin, folder=short_folder) as sidecar:
        address = sidecar.wait_for("^listening ").split()[1]
        with running("plugin", "logs", "small", "--follow", "--address", address, folder=short_folder) as logs:
            logs.wait_for("sidecar")
            assert fumehood("call", "echo", "text=hi", address=address).status == 0
            logs.wait_for("stderr  echoing")
            assert logs.end(signal.SIGINT) == 0


def test_locked_serves_nothing_that_is_not_pinned(short_folder: Path) -> None:
    plugin = write_plugin(short_folder / "small", "small", CODE)
    options = ("--plugin", plugin, "--locked")
    with running("serve", *options, folder=short_folder) as sidecar:
        address = sidecar.wait_for("^listening ").split()[1]
        shape = fumehood("plugin", "list", "--json", address=address).json["plugins"][0]
    assert (shape["state"], [reason["code"] for reason in shape["reasons"]]) == ("refused", ["not_pinned"])


def test_a_configuration_that_is_wrong_is_status_2_with_file_line_and_nearest_key(tmp_path: Path) -> None:
    (tmp_path / "fumehood.toml").write_text("[server]\nlissten = []\n")
    done = fumehood("serve", folder=tmp_path)
    assert done.status == 2
    assert f"{tmp_path}/fumehood.toml:2: unknown key `lissten`" in done.stderr
    assert "listen" in done.stderr.splitlines()[1]


def test_an_address_that_another_sidecar_holds_is_status_2(short_folder: Path) -> None:
    with running("serve", folder=short_folder) as sidecar:
        sidecar.wait_for("^listening ")
        done = fumehood("serve", folder=short_folder)
    assert done.status == 2
    assert "another sidecar is serving there" in done.stderr


def test_dev_serves_what_is_mended_reloads_on_save_shows_the_change_and_leaves_nothing(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path / "small", "small", "nonsense(")
    module = plugin / "small.py"
    with running("plugin", "dev", plugin, folder=tmp_path) as dev:
        dev.wait_for("small.py:1: SyntaxError")
        dev.wait_for("^watching ")
        write_plugin(plugin, "small", CODE)
        address = dev.wait_for("export FUMEHOOD_ADDRESS=").split("=")[1]
        dev.wait_for("fumehood call echo text=")
        module.write_text("def broken(:\n")
        dev.wait_for("Nothing is served until it is mended: no process of what was there before runs.")
        write_plugin(plugin, "small", CODE)
        (plugin / "target").mkdir()
        (plugin / "target" / "built").write_text("by a compiler")
        # A call that comes before it is taken up is refused, for the plugin isn't what it was.
        deadline = time.monotonic() + TIMEOUT_S
        while fumehood("call", "echo", "text=hi", address=address).stdout != "hi\n":
            assert time.monotonic() < deadline
        dev.wait_for("stderr  echoing")
        dev.wait_for("call    echo OK in ")

        module.write_text(
            module.read_text()
            .replace("Give a text back", "Give it back twice")
            .replace("return text", "return text * 2")
        )
        dev.wait_for("^Its definitions changed: echo: description")
        dev.wait_for(r'^\+  "description": "Give it back twice')
        dev.wait_for("fumehood call echo text=")
        assert fumehood("call", "echo", "text=hi", address=address).stdout == "hihi\n"

        module.write_text("def broken(:\n")
        dev.wait_for("small.py:1: SyntaxError")
        dev.wait_for("What was there before still serves, in the processes that run already.")
        assert fumehood("tools", "--all", "--json", address=address).json["tools"][0]["name"] == "echo"
        assert fumehood("call", "echo", "text=hi", address=address).stdout == "hihi\n"
        assert not any("target" in line for line in dev.seen)

        assert dev.end(signal.SIGINT) == 0
    assert fumehood("tools", address=address).status == 3
    assert not Path(address.removeprefix("unix:")).parent.exists()


def test_dev_says_on_a_terminal_that_it_starts_before_it_does(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path / "small", "small", CODE)
    _, told = on_terminal("plugin", "dev", plugin, folder=tmp_path, typed=[("watching ", signal.SIGINT)])
    assert "starting small" in told.splitlines()[0]


def test_dev_grants_secrets_from_a_file_and_from_the_environment(tmp_path: Path) -> None:
    code = """
        from fumehood_sdk import Context, Plugin
        plugin = Plugin("asks", version="1.0.0")

        @plugin.tool(side_effects="none", requires=["secret:FILED", "secret:SET"])
        def lengths(ctx: Context) -> list[int]:
            \"\"\"The lengths of the secrets.\"\"\"
            return [len(ctx.secret(name)) for name in ("FILED", "SET")]
    """
    plugin = write_plugin(tmp_path / "asks", "asks", code)
    (tmp_path / "key.txt").write_text("filed secret value\n")
    (tmp_path / "key.txt").chmod(0o600)
    options = ("--secret", "FILED=key.txt", "--secret", "SET")
    with running("plugin", "dev", plugin, *options, folder=tmp_path, more={"SET": "a set secret"}) as dev:
        address = dev.wait_for("export FUMEHOOD_ADDRESS=").split("=")[1]
        dev.wait_for("^watching ")
        done = fumehood("call", "lengths", "--json", address=address)
    assert done.json["details"] == [18, 12], done.stdout
    absent = fumehood("plugin", "dev", plugin, "--secret", "NOT_SET", folder=tmp_path)
    assert (absent.status, "no environment variable of that name" in absent.stderr) == (2, True)


def test_a_build_counts_as_a_save_only_where_it_makes_the_plugins_program(tmp_path: Path) -> None:
    (tmp_path / "plugin.toml").write_text('[plugin]\ncommand = ["./target/release/server"]\n')
    saved = ["main.rs", "plugin.toml", "src/build.rs", "target/release/server"]
    built = [
        "target/release/server.d",
        ".git/index",
        "a.pyc",
        "node_modules/x/y.js",
        ".main.rs.swp",
        "main.rs~",
        "4913",
    ]
    assert [name for name in saved + built if is_source(tmp_path, str(tmp_path / name))] == saved


def test_what_the_system_refuses_is_told_without_a_traceback(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "completion", "bash"],
            cwd=tmp_path,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert done.stderr == "error: No space left on device\nMake room on the disk.\n"
