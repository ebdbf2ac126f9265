"""The sidecar under attack: its plugins, its limits, and the name server that never answers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.sidecar import Sidecar, running_sidecar

DESCRIPTORS = 2048
"""Of the sidecar: few enough that one attacker can open more connections."""
SLOW_SERVER = "127.77.0.1"
"""A name server that never answers, where this process may set one up for the sidecar."""
NEIGHBOUR = "neighbour.soak.example"
"""A name of the sidecar's hosts file."""
_PLUGINS = Path(__file__).parent / "plugins"
_REFERENCES = 500


@dataclass(frozen=True, slots=True)
class House:
    """A sidecar and what the attacks need to know of it."""

    sidecar: Sidecar
    log: LogReader
    web: socket.socket
    """A listening socket at an address and port that fetchers are granted."""
    slow_names: bool
    """Whether names that are in no hosts file are looked up at a server that never answers."""

    @property
    def private(self) -> str:
        """Where the caller that behaves well gets in."""
        return self.sidecar.targets[0]

    @property
    def public(self) -> str:
        """Where everybody gets in."""
        return self.sidecar.targets[1]


class LogReader:
    """Reads the sidecar's stderr, or stops reading it, as a stuck log collector does."""

    def __init__(self, readable: int, path: Path) -> None:
        """Keep the log in `path`."""
        self._readable = readable
        self._path = path
        self._may_read = threading.Event()
        self._may_read.set()
        threading.Thread(target=self._read, daemon=True).start()

    @contextlib.contextmanager
    def stuck(self) -> Iterator[None]:
        """Read nothing within the block."""
        self._may_read.clear()
        try:
            yield
        finally:
            self._may_read.set()

    def _read(self) -> None:
        with self._path.open("wb") as log:
            while data := os.read(self._readable, 1 << 20):
                log.write(data)
                self._may_read.wait()


@contextlib.contextmanager
def open_house(log: Path, *, nice: int) -> Iterator[House]:
    """Start the sidecar, with its log in `log`; end it with the block. `nice` is its niceness, beside ours."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        web = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1024))
        slow_names = _can_have_slow_names(folder, stack)
        limit = f"ulimit -n {DESCRIPTORS}; renice -n {nice} $$ >&2; "
        mounts = f"mount --bind {folder}/resolv.conf /etc/resolv.conf && mount --bind {folder}/hosts /etc/hosts && "
        prefix = ("unshare", "--mount", "--propagation", "private") if slow_names else ()
        # A session of its own, as a service has: the kernel weighs sessions against each other (autogroup in sched(7)),
        # and in ours it would share one weight with the attackers.
        shell = limit + (mounts if slow_names else "") + 'exec setsid "$0" "$@"'
        readable, writable = os.pipe()
        reader = LogReader(readable, log)
        sidecar = stack.enter_context(
            running_sidecar(
                list(_plugins(folder, web.getsockname()[1])),
                server='listen = ["unix:fumehood.sock", "127.0.0.1:0"]',
                more='[egress]\nallow_private = ["127.0.0.1"]\nconnect_timeout_s = 2\n',
                interpreter=(*prefix, "sh", "-c", shell, sys.executable),
                stderr=writable,
            )
        )
        os.close(writable)
        yield House(sidecar, reader, web, slow_names)


def _plugins(folder: Path, port: int) -> Iterator[tuple[Path, str]]:
    for name in ("quiet", "honest", "hostile", "changing"):
        yield shutil.copytree(_PLUGINS / name, folder / name), ""
    checks = [{"$ref": f"#/$defs/d{number}"} for number in range(_REFERENCES)]
    schema = {
        "type": "object",
        "$defs": {f"d{number}": {"type": "integer"} for number in range(_REFERENCES)},
        "properties": {"value": {"allOf": checks}},
    }
    with (folder / "hostile" / "plugin.toml").open("a") as manifest:
        manifest.write(
            f'\n[[tool]]\nname = "refs"\ndescription = "Checked by many rules."\nside_effects = "none"\n'
            f"input_schema = '{json.dumps(schema)}'\n"
        )
    hosts = json.dumps([f"127.0.0.1:{port}", f"{NEIGHBOUR}:{port}", "*.slow.soak.example:80"])
    for name in ("fetcher", "fetcher2", "neighbour"):
        copied = shutil.copytree(_PLUGINS / "fetcher", folder / name)
        code, manifest_text = copied / "fetcher.py", copied / "plugin.toml"
        manifest_text.write_text(manifest_text.read_text().replace('name = "fetcher"', f'name = "{name}"'))
        text = code.read_text().replace('Plugin("fetcher"', f'Plugin("{name}"')
        code.write_text(text.replace("def fetch(", f"def {name}_fetch("))
        yield copied, f'hosts = {hosts}\nallow_private = ["{NEIGHBOUR}=127.0.0.1"]'


def _can_have_slow_names(folder: Path, stack: contextlib.ExitStack) -> bool:
    """Set up a server that never answers, and the files that lead to it. Takes root, and a mount namespace."""
    (folder / "resolv.conf").write_text(f"nameserver {SLOW_SERVER}\n")
    (folder / "hosts").write_text(f"127.0.0.1 localhost {NEIGHBOUR}\n")
    trial = ["unshare", "--mount", "--propagation", "private", "mount", "--bind", str(folder / "hosts"), "/etc/hosts"]
    if os.geteuid() or subprocess.run(trial, capture_output=True, check=False).returncode:
        return False
    silent = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    try:
        silent.bind((SLOW_SERVER, 53))
    except OSError:
        return False
    return True
