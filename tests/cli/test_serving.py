"""`fumehood serve`, `doctor` and `plugin dev`: the commands that start something."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fumehood_server.cli.saved_files import is_source

from tests import preloaded
from tests.cli.command import COMMAND, TIMEOUT_S, environment, fumehood, on_terminal
from tests.sidecar import write_plugin

CODE = """
    from fumehood_sdk import Plugin
    plugin = Plugin("small", version="1.0.0")

    @plugin.tool(side_effects="none")
    def echo(text: str) -> str:
        \"\"\"Give a text back.\"\"\"
        print("echoing")
        return text
"""


class Running:
    """A command that goes on, and the lines that it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.seen: list[str] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def wait_for(self, pattern: str) -> str:
        """The first line from now on in which the pattern is found."""
        while True:
            try:
                line = self._lines.get(timeout=TIMEOUT_S)
            except queue.Empty:
                raise AssertionError(f"no line with {pattern!r}; so far: {self.seen}") from None
            if line is None:
                raise AssertionError(f"it ended without a line with {pattern!r}: {self.seen}")
            self.seen.append(line)
            if re.search(pattern, line):
                return line

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        status = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        return status


@contextmanager
def running(*arguments: str | Path, folder: Path, more: dict[str, str] | None = None) -> Iterator[Running]:
    with preloaded.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=folder,
        env=environment(more={"PYTHONUNBUFFERED": "1", **(more or {})}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        command = Running(process)
        try:
            yield command
        finally:
            if process.poll() is None:
                command.end()


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


def test_doctor_finds_every_layer_here_and_exits_with_0(tmp_path: Path) -> None:
    done = fumehood("doctor", "--json", folder=tmp_path)
    assert (done.status, done.json["usable"]) == (0, True)
    findings = done.json["findings"]
    assert list(findings[0]) == ["area", "layer", "feature", "status", "detail", "remedy"]
    assert {finding["area"] for finding in findings} == {"machine", "sandbox", "landlock", "configuration", "sidecar"}
    layers = {finding["layer"] for finding in findings if finding["status"] == "in force"}
    assert {"namespaces", "seccomp", "landlock", "identity", "capabilities", "rlimits", "environment"} <= layers
    (speculation,) = [each for each in findings if each["feature"] == "speculation"]
    assert "store bypass" in speculation["detail"]
    assert (speculation["status"] == "ok") == (speculation["remedy"] == "")
    assert {"python", "kernel", "bubblewrap"} <= {finding["layer"] for finding in findings}
    assert "✓" in fumehood("doctor", folder=tmp_path).stdout


def test_doctor_exits_with_1_where_the_configuration_or_a_plugin_can_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "fumehood.toml").write_text('[[plugin]]\npath = "absent"\n')
    done = fumehood("doctor", "--json", folder=tmp_path)
    assert (done.status, done.json["usable"]) == (1, False)
    missing = [finding for finding in done.json["findings"] if finding["status"] == "missing"]
    assert [(finding["feature"], bool(finding["remedy"])) for finding in missing] == [("plugin absent", True)]
    (tmp_path / "fumehood.toml").write_text("[sever]\n")
    assert "fumehood.toml:1: " in fumehood("doctor", folder=tmp_path).stdout


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
        assert "hi\n" in (fumehood("call", "echo", "text=hi", address=address).stdout for _ in range(20))
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


def test_doctor_shows_a_plugin_whose_pin_no_longer_fits(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "small", "small", CODE)

    def finding() -> tuple[int, str, str, str]:
        done = fumehood("doctor", "--json", folder=tmp_path)
        (found,) = [each for each in done.json["findings"] if each["feature"] == "plugin small"]
        return done.status, found["status"], found["detail"], found["remedy"]

    (tmp_path / "fumehood.toml").write_text('[[plugin]]\npath = "small"\n')
    status, mark, detail, remedy = finding()
    assert (status, mark) == (0, "note")
    assert "not pinned" in detail
    assert fumehood("plugin", "add", "small", "--yes", folder=tmp_path).status == 0
    assert finding()[:2] == (0, "ok")
    (folder / "more.py").write_text("")
    status, mark, detail, remedy = finding()
    assert (status, mark) == (1, "missing")
    assert "not the ones that were pinned" in detail
    assert "fumehood plugin add" in remedy


def test_doctor_tells_what_is_the_weakest_that_is_accepted(tmp_path: Path) -> None:
    for minimum in ("namespaces", "landlock"):
        (tmp_path / "fumehood.toml").write_text(f'[sandbox]\nminimum = "{minimum}"\n')
        done = fumehood("doctor", "--json", folder=tmp_path)
        (choice,) = [each for each in done.json["findings"] if each["layer"] == "backend"]
        assert choice["status"] == "in force"
        assert f'minimum = "{minimum}"' in choice["detail"]
    (tmp_path / "fumehood.toml").write_text('[sandbox]\nminimum = "none"\n')
    done = fumehood("doctor", "--json", folder=tmp_path)
    (file,) = [each for each in done.json["findings"] if each["area"] == "configuration"]
    assert (done.status, file["status"]) == (1, "missing")
    assert "namespaces" in file["detail"] + file["remedy"]


def findings(folder: Path, area: str) -> tuple[int, dict[str, tuple[str, str, str]]]:
    done = fumehood("doctor", "--json", folder=folder)
    found = [each for each in done.json["findings"] if each["area"] == area]
    key = "feature" if area == "configuration" else "layer"
    return done.status, {each[key]: (each["status"], each["detail"], each["remedy"]) for each in found}


def test_doctor_tells_secrets_that_can_not_be_used(tmp_path: Path) -> None:
    for name, mode in (("good", 0o600), ("open", 0o644)):
        (tmp_path / name).write_text("a secret of some length")
        (tmp_path / name).chmod(mode)
    lines = [f'[secrets.{name.upper()}]\nfile = "{name}"' for name in ("good", "open", "absent")]
    (tmp_path / "fumehood.toml").write_text("\n".join([*lines, '[secrets.VARIABLE]\nenv = "NO_SUCH_VARIABLE"']))
    status, found = findings(tmp_path, "configuration")
    assert status == 1
    assert found["secret OPEN"][0] == "missing"
    assert "others may use" in found["secret OPEN"][1]
    assert found["secret ABSENT"][::2] == ("missing", "create the file, with mode 600")
    assert found["secret VARIABLE"][0] == "note"
    assert "secret GOOD" not in found
    (tmp_path / "fumehood.toml").write_text(lines[0])
    assert findings(tmp_path, "configuration")[0] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's plugins are other users than the sidecar")
def test_doctor_tells_granted_paths_that_the_plugins_user_can_not_use(tmp_path: Path) -> None:
    write_plugin(tmp_path / "small", "small", CODE)
    for name, mode in (("open", 0o644), ("mixed", 0o600)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
        (tmp_path / name / "file").chmod(mode)
        os.chown(tmp_path / name, 54320, 54320)
        os.chown(tmp_path / name / "file", 54321, 54321)

    def grant(*paths: str) -> dict[str, tuple[str, str, str]]:
        (tmp_path / "fumehood.toml").write_text(f'[[plugin]]\npath = "small"\nread = {json.dumps(paths)}\n')
        _, found = findings(tmp_path, "configuration")
        return {key: value for key, value in found.items() if key.startswith("grant")}

    assert grant("open") == {}
    (mixed,) = grant("open", "mixed").values()
    assert mixed[0] == "missing"
    assert f"{tmp_path}/mixed: user " in mixed[1]
    assert "1 of 1 entries can't be read, such as file" in mixed[1]
    assert "chmod" in mixed[2]


def test_doctor_tells_what_differs_from_what_is_served(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "small", "small", CODE)
    write_plugin(tmp_path / "other", "other", CODE.replace('"small"', '"other"'))
    for name in ("had", "given"):
        (tmp_path / name).mkdir()
    private = 'hosts = ["db.example:443"]\nallow_private = ["db.example=10.0.0.7"]\n'
    (tmp_path / "fumehood.toml").write_text(f'[[plugin]]\npath = "small"\nread = ["had"]\n{private}')
    with running("serve", "--log-format", "json", folder=tmp_path) as serving:
        serving.wait_for("^listening ")
        _, found = findings(tmp_path, "sidecar")
        assert list(found) == ["sidecar"], "control: nothing differs"
        (shown,) = fumehood("plugin", "list", "--json", folder=tmp_path).json["plugins"]
        assert (shown["grants"]["private_addresses"], shown["grants"]["hosts"]) == (
            ["db.example=10.0.0.7"],
            ["db.example:443"],
        )
        (folder / "small.py").write_text(CODE + "\n# changed\n")
        more = '[[plugin]]\npath = "small"\nmax_side_effects = "write"\nwrite = ["given"]\n[[plugin]]\npath = "other"\n'
        (tmp_path / "fumehood.toml").write_text(more)
        done = fumehood("doctor", "--json", folder=tmp_path)
        details = [each["detail"] for each in done.json["findings"] if each["feature"] == "change"]
        assert details == [
            f"{tmp_path}/other: not served yet",
            f"{tmp_path}/small: granted up to write, served up to read",
            f"{tmp_path}/small: host db.example:443: no longer granted, and served with it",
            f"{tmp_path}/small: its files are not those that are served",
            f"{tmp_path}/small: private address db.example=10.0.0.7: no longer granted, and served with it",
            f"{tmp_path}/small: reading {tmp_path}/had: no longer granted, and served with it",
            f"{tmp_path}/small: writing {tmp_path}/given: granted, and not served with it",
        ]
