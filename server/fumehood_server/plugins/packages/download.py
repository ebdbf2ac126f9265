"""Fetches one wheel by `pip download`, for `NAME==VERSION`: no dependencies, wheels alone, so that no code is run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from fumehood_server.errors import FumehoodError
from fumehood_server.model.text import printable

DOWNLOAD_TIMEOUT_S = 300.0
"""For a slow index. pip has shorter timeouts of its own for each request."""
_REQUIREMENT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?==[A-Za-z0-9][A-Za-z0-9._!+-]*", re.ASCII)
_TOLD_LINES = 5


class DownloadError(FumehoodError):
    """A wheel can't be had. The operator must act; the message has what pip said last."""


def is_requirement(text: str) -> bool:
    """Whether it is `NAME==VERSION`, of one exact version."""
    return _REQUIREMENT.fullmatch(text) is not None


def download_wheel(requirement: str, into: Path) -> Path:
    """Fetch the wheel that pip's configuration and PIP_* variables lead to. Blocks for up to five minutes.

    Raises:
        DownloadError: there is no such wheel for this machine, or no pip.
    """
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check", "--quiet"]
    # -P: no module of the working directory's is pip.
    command = [sys.executable, "-P", "-m", "pip", "download", *options, "--dest", str(into), requirement]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DOWNLOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise DownloadError(f"pip did not fetch {requirement} within {DOWNLOAD_TIMEOUT_S:g} s") from exc
    wheels = sorted(into.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()][-_TOLD_LINES:]
    said = "; ".join(printable(line.strip()) for line in lines) or f"it ended with status {done.returncode}"
    raise DownloadError(f"pip could not fetch {requirement}: {said}")
