"""The package installers: uv or pip, as programs of this machine, with the index that each is configured for."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from fumehood_server.model.text import printable
from fumehood_server.plugins.environments.contents import contents_bytes
from fumehood_server.plugins.environments.errors import InstallerError

UV, PIP = "uv", "pip"
TIME_LIMIT_S = 1800.0
"""For gigabytes over a slow line; what takes longer hangs."""
MAX_BYTES = 16 * 1024**3
"""Of an environment with what was downloaded for it. The largest that is used, torch with CUDA, takes 5 GiB."""
MAX_OUTPUT_BYTES = 64 * 1024**2
"""pip's report holds each package's whole description."""
_POLL_S = 0.5
_TOLD_LINES = 12
_TOLD_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Installer:
    """A program that resolves and installs packages."""

    name: str
    """`UV` or `PIP`."""
    command: tuple[str, ...]
    """How it is called."""


def find_installer(wanted: str = "") -> Installer:
    """The installer to use: `wanted`, else uv where it can be had, else pip.

    Raises:
        InstallerError: there is none.
    """
    program = shutil.which("uv")
    if wanted in {"", UV}:
        if program:
            return Installer(UV, (program,))
        if importlib.util.find_spec("uv"):
            return Installer(UV, (sys.executable, "-P", "-m", "uv"))
    if wanted in {"", PIP} and importlib.util.find_spec("pip"):
        return Installer(PIP, (sys.executable, "-P", "-m", "pip"))
    raise InstallerError(
        f"{wanted or 'neither uv nor pip'} can{'not' if wanted else ''} be found", "install uv beside the sidecar"
    )


def run_installer(
    command: tuple[str, ...],
    folder: Path,
    *,
    what: str,
    stdin: str = "",
    time_limit_s: float = TIME_LIMIT_S,
    max_bytes: int = MAX_BYTES,
) -> str:
    """Run an installer in `folder`, which is private and empty, and return what it wrote to stdout.

    Its temporary files lie there as well, so that `max_bytes` bounds all that it writes. It and its children are ended
    when it takes too long or too much, and when this function is left by an exception, KeyboardInterrupt included.

    Raises:
        InstallerError: it failed, took too long, or wrote too much.
    """
    temporary = folder / "tmp"
    temporary.mkdir()
    source, stdout, stderr = folder / "stdin", folder / "stdout", folder / "stderr"
    source.write_text(stdin)
    deadline = time.monotonic() + time_limit_s
    with source.open("rb") as read, stdout.open("wb") as out, stderr.open("wb") as err:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=_environment(temporary),
            stdin=read,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(_POLL_S)
                    break
                if contents_bytes(folder) > max_bytes:
                    raise InstallerError(f"{what} takes more than {max_bytes} bytes", "ask for fewer packages")
                if time.monotonic() > deadline:
                    raise InstallerError(f"{what} took longer than {time_limit_s:g} s", "try again")
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if status != 0:
        raise InstallerError(f"{what} failed:\n{_last_lines(stderr)}")
    if stdout.stat().st_size > MAX_OUTPUT_BYTES:
        raise InstallerError(f"{what} wrote more than {MAX_OUTPUT_BYTES} bytes")
    return stdout.read_text(encoding="utf-8", errors="replace")


def _environment(temporary: Path) -> dict[str, str]:
    """The operator's own environment: it holds proxies and the index. Nothing that puts code before the installer's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "TMPDIR": str(temporary), "UV_PYTHON_DOWNLOADS": "never", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def _last_lines(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _TOLD_BYTES, 0))
        text = file.read().decode(errors="replace")
    lines = [line for each in text.splitlines() if (line := printable(each.rstrip()))]
    return "\n".join(lines[-_TOLD_LINES:]) or "it wrote nothing"
