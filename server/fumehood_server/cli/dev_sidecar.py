"""Child process of `fumehood plugin dev`: a sidecar that serves one plugin on a private socket."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from fumehood_sandbox import Backend, Level

from fumehood_server.cli.commands.serve import GRPC_EXPERIMENTS
from fumehood_server.cli.event_text import event_text
from fumehood_server.cli.failure import CommandError, ExitStatus
from fumehood_server.config.config import LOCK_NAME
from fumehood_server.config.toml_text import toml_string

if TYPE_CHECKING:
    from types import TracebackType

PLUGIN_START_TIMEOUT_S = 60.0
"""`start_timeout_s` of the child, whose configuration nobody can change: on a busy machine a start takes long."""
START_TIMEOUT_S = 90.0
"""A start takes a second; the first one on a cold disk some more, and it waits for the plugin's own."""
STOP_TIMEOUT_S = 10.0
"""Calls get a second to finish, processes a second to end: what takes longer hangs."""

_LAUNCH = """
import ctypes, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG (prctl(2)): it must not outlive `plugin dev`
from fumehood_server.cli.dev_sidecar import serve_folder
serve_folder(sys.argv[1], pin_remedy=sys.argv[2])
"""

_FOR_OPERATORS = frozenset({"loop_held_up"})
"""Events of a sidecar that serves many. Of one plugin's own they say nothing that can be mended."""

Show = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DevSecret:
    """A secret of the plugin under development: from a file, or else from the environment variable of its name."""

    name: str
    file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DevGrants:
    """Grants of the plugin under development."""

    max_side_effects: Level
    read: Sequence[Path] = ()
    write: Sequence[Path] = ()
    hosts: Sequence[str] = ()
    """As in `[[plugin]]`. An address among them may be one of this machine or network."""
    minimum: Backend = Backend.NAMESPACES
    """As in `[sandbox]`."""
    allowed_tools: Sequence[str] = ()
    """Tools that would need an approval, which `dev` gives."""
    secrets: Sequence[DevSecret] = ()
    tool_secrets: Sequence[tuple[str, tuple[str, ...]]] = ()
    """Of those, the names that each tool requires."""
    tool_levels: Mapping[str, Level] = field(default_factory=dict)
    """Kind `mcp`: levels that tools have in place of what their server says."""
    one_process: bool = False
    """Kind `mcp`: as in `[[plugin]]`."""


class DevSidecar:
    """A sidecar in a child process, for the length of a `with`. Its log lines are passed to `show`, on a thread."""

    pin_remedy: ClassVar[str] = ""
    """As that of `fumehood_server.app.serve`."""

    def __init__(self, folder: Path, plugin: Path, grants: DevGrants, show: Show, *, environments: Path) -> None:
        """`folder` is of `dev_folder`; `plugin` is the plugin's own; `environments` is where packages are found."""
        self._folder = folder
        self._show = show
        self._started: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._process: subprocess.Popen[str] | None = None
        self.address = f"unix:{folder / 's'}"
        (folder / "state").mkdir(mode=0o700, exist_ok=True)
        link = folder / "state" / "environments"
        link.unlink(missing_ok=True)
        link.symlink_to(environments)
        (folder / "fumehood.toml").write_text(_config(plugin, grants))

    def __enter__(self) -> Self:
        """Start it and wait until it takes calls.

        Raises:
            CommandError: it did not start.
        """
        self.forget_pin()
        # -P: the working folder is the author's and provides no modules.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _LAUNCH, str(self._folder / "fumehood.toml"), self.pin_remedy],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        for stream, read in ((self._process.stdout, self._read_addresses), (self._process.stderr, self._read_log)):
            thread = threading.Thread(target=read, args=(stream,), daemon=True)
            thread.start()
            self._threads.append(thread)
        try:
            first = self._started.get(timeout=START_TIMEOUT_S)
        except BaseException as error:
            self._end()
            if isinstance(error, queue.Empty):
                first = None
            else:
                raise
        if first is None:
            self._end()
            raise CommandError(
                "the sidecar did not start",
                "What it logged above says why.",
                code="DEV_SIDECAR_FAILED",
                status=ExitStatus.FAILED,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it: SIGTERM, then SIGKILL. Ctrl-C has reached it already, since it is in the terminal's group."""
        self._end()

    def forget_pin(self) -> None:
        """Remove the lock, so that the next load or reload accepts what is on disk."""
        (self._folder / LOCK_NAME).unlink(missing_ok=True)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for thread in self._threads:
            thread.join(STOP_TIMEOUT_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()

    def _read_addresses(self, stream: IO[str]) -> None:
        for line in stream:
            self._started.put(line)
        self._started.put(None)

    def _read_log(self, stream: IO[str]) -> None:
        for line in stream:
            try:
                event = json.loads(line)
            except ValueError:
                event = {"event": "stderr", "level": "error", "message": line.rstrip()}
            if event.get("event") in _FOR_OPERATORS:
                continue
            if event.get("level") in {"warning", "error"}:
                event.setdefault("message", event_text(event))
            self._show(event)


def serve_folder(config_path: str, *, pin_remedy: str) -> None:
    """The child: serve the configuration's plugin from its folder, and exit."""
    os.environ.setdefault("GRPC_EXPERIMENTS", GRPC_EXPERIMENTS)  # gRPC reads it when it is loaded
    from fumehood_server.app import serve
    from fumehood_server.config import load_config
    from fumehood_server.errors import ConfigError, FumehoodError

    def announce(targets: tuple[str, ...]) -> None:
        sys.stdout.write("".join(f"{target}\n" for target in targets))

    try:
        config = load_config(Path(config_path))
        sys.exit(serve(config, ready=announce, terminal=False, from_folders=True, pin_remedy=pin_remedy))
    except ConfigError as error:  # of a file that its author has never seen
        _tell_refused("config_refused", f"{error.problem}; {error.hint}" if error.hint else error.problem)
    except FumehoodError as error:  # such as a folder or socket that can't be had
        _tell_refused("start_failed", str(error))


def _tell_refused(event: str, message: str) -> NoReturn:
    sys.stderr.write(json.dumps({"event": event, "level": "error", "message": message}) + "\n")
    sys.exit(ExitStatus.FAILED)


def _addresses(hosts: Sequence[str]) -> Iterator[str]:
    """Those of the hosts that are written as addresses."""
    for host in hosts:
        text = host.rpartition(":")[0].strip("[]")
        with contextlib.suppress(ValueError):
            yield str(ip_address(text))


def _config(plugin: Path, grants: DevGrants) -> str:
    def quoted(path: Path | str) -> str:
        return toml_string(str(path))

    lines = [
        "[server]",
        'listen = ["unix:s"]',
        'state_dir = "state"',
        "drain_s = 1",
        f"start_timeout_s = {PLUGIN_START_TIMEOUT_S:g}",
        "[sandbox]",
        f'minimum = "{grants.minimum}"',
        *(line for secret in grants.secrets for line in _secret_lines(secret, quoted)),
        "[[plugin]]",
        f"path = {quoted(plugin)}",
        f'max_side_effects = "{grants.max_side_effects}"',
        f"read = [{', '.join(quoted(path.absolute()) for path in grants.read)}]",
        f"write = [{', '.join(quoted(path.absolute()) for path in grants.write)}]",
        f"hosts = [{', '.join(map(quoted, grants.hosts))}]",
        f"allow_private = [{', '.join(map(quoted, _addresses(grants.hosts)))}]",
    ]
    if grants.one_process:
        lines.append("one_process = true")
    secrets = dict(grants.tool_secrets)
    for tool in dict.fromkeys((*grants.allowed_tools, *secrets, *grants.tool_levels)):
        lines.append(f"[plugin.tools.{tool}]")
        if tool in grants.allowed_tools:
            lines.append('permission = "allow"')
        if tool in grants.tool_levels:
            lines.append(f'side_effects = "{grants.tool_levels[tool]}"')
        if secrets.get(tool):
            lines.append(f"secrets = [{', '.join(map(quoted, secrets[tool]))}]")
    return "\n".join(lines) + "\n"


def _secret_lines(secret: DevSecret, quoted: Callable[[Path | str], str]) -> tuple[str, str]:
    source = f"env = {quoted(secret.name)}" if secret.file is None else f"file = {quoted(secret.file.absolute())}"
    return f"[secrets.{quoted(secret.name)}]", source
