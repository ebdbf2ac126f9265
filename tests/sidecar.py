"""The real sidecar as a process of its own, for tests of any area."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from tests import preloaded

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
LOG_TIMEOUT_S = 30.0

_LAUNCH = """
import json, sys
from pathlib import Path
from fumehood_server.app import serve
from fumehood_server.config import load_config
ready = lambda targets: print(json.dumps(targets), flush=True)
sys.exit(serve(load_config(Path(sys.argv[1])), locked="--locked" in sys.argv, ready=ready))
"""

Plugin = Path | tuple[Path, str]
"""A plugin's folder, or the folder and more lines of its `[[plugin]]` table."""


@dataclass(frozen=True)
class Sidecar:
    """A sidecar that serves."""

    targets: tuple[str, ...]
    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def target(self) -> str:
        return self.targets[0]

    def channel(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(self.target, options=[("grpc.use_local_subchannel_pool", 1)])

    def log(self) -> list[dict[str, Any]]:
        """The lines of its log so far, without one that is being written."""
        *lines, _ = (self.folder / "stderr").read_bytes().split(b"\n")  # of which half a character may be there
        return [json.loads(line) for line in lines if line.startswith(b"{")]

    def logged(self, **fields: object) -> dict[str, Any]:
        """The one line of its log with these fields, once it is there: a thread of its own writes the log."""
        deadline = time.monotonic() + LOG_TIMEOUT_S
        while not (found := [line for line in self.log() if fields.items() <= line.items()]):
            assert time.monotonic() < deadline, f"no line has {fields}"
            time.sleep(0.01)
        (line,) = found
        return line

    def stderr(self) -> str:
        return (self.folder / "stderr").read_text()

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Its exit status."""
        return self.process.wait(timeout_s)


@contextmanager
def running_sidecar(
    plugins: Sequence[Plugin] = (),
    *,
    server: str = "",
    more: str = "",
    arguments: Sequence[str] = (),
    interpreter: Sequence[str] = preloaded.PYTHON,
    environment: Mapping[str, str] | None = None,
    everybody: bool = False,
    stderr: int | None = None,
    at: Path | None = None,
) -> Iterator[Sidecar]:
    """Start a sidecar on a unix socket in a folder of its own; end it, and see it gone, when the block ends.

    `server` holds more lines of `[server]`, `more` whatever else stands in fumehood.toml. TCP takes anybody, unless
    `more` names callers. With `everybody` the folder
    is open to every user: `interpreter` may lead to another one. `stderr` is a descriptor for the log in
    place of a file. `at` is the folder of an earlier sidecar, whose state this one takes up.
    """
    # Not pytest's tmp_path: the path of a unix socket may have 107 bytes.
    with contextlib.nullcontext(at) if at is not None else tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        if everybody:
            folder.chmod(0o777)
        (folder / "fumehood.toml").write_text(_config(plugins, server, more))
        command = [*interpreter, "-c", _LAUNCH, str(folder / "fumehood.toml"), *arguments]
        with (folder / "stderr").open("wb") as log:
            process: subprocess.Popen[bytes] = preloaded.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log if stderr is None else stderr,
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        try:
            yield Sidecar(_targets(process, folder), process, folder)
        finally:
            _end(process)


def write_plugin(folder: Path, name: str, code: str, *, manifest: str = "") -> Path:
    """A python plugin whose module is `code`, which names its `Plugin` `plugin`."""
    folder.mkdir(parents=True, exist_ok=True)
    head = f'[plugin]\nname = "{name}"\nversion = "1.0.0"\nkind = "python"\nentrypoint = "{name}:plugin"\n'
    (folder / "plugin.toml").write_text(head + manifest)
    (folder / f"{name}.py").write_text(textwrap.dedent(code))
    return folder


def _config(plugins: Sequence[Plugin], server: str, more: str) -> str:
    if "start_timeout_s" not in server:  # a machine may have several things to do
        server += "\nstart_timeout_s = 60"
    on_loopback = any(each in server for each in ("127.0.0.1:", "[::1]:", "localhost:"))
    if on_loopback and "allow_anonymous" not in server and "[[caller]]" not in more:
        server += "\nallow_anonymous = true"
    parts = [f"[server]\n{server}\n"]
    for plugin in plugins:
        path, lines = plugin if isinstance(plugin, tuple) else (plugin, "")
        parts.append(f"[[plugin]]\npath = {json.dumps(str(path))}\n{lines}\n")
    return "\n".join([*parts, more])


def _targets(process: subprocess.Popen[bytes], folder: Path) -> tuple[str, ...]:
    deadline = time.monotonic() + START_TIMEOUT_S
    stdout = process.stdout
    if stdout is None:
        raise AssertionError("stdout is a pipe")
    ready, _, _ = select.select([stdout], [], [], max(deadline - time.monotonic(), 0))
    line = stdout.readline() if ready else b""
    if not line:
        raise AssertionError(f"the sidecar did not start:\n{(folder / 'stderr').read_text()}")
    return tuple(json.loads(line))


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            raise
    if process.stdout is not None:
        process.stdout.close()
