"""Version of this machine's Node: an older one's own fetch doesn't find the relay, by which granted hosts are reached.

docs/egress.md, "The relay".
"""

from __future__ import annotations

import re
import shutil
import subprocess

_NODES = {"node", "nodejs"}
_VERSION = re.compile(r"v(\d{1,4})\.(\d{1,4})\.")
_TIME_LIMIT_S = 10.0
"""For a program that prints one line."""


def old_node(program: str) -> str:
    """The version of the Node that `program` is, if its fetch needs more to reach a granted host. Empty: it is none."""
    if program not in _NODES:
        return ""
    path = shutil.which(program)
    if path is None:
        return ""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_TIME_LIMIT_S, check=False)
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
    found = _VERSION.match(done.stdout)
    return "" if found is None or _looks_at_proxies(int(found[1]), int(found[2])) else done.stdout.strip()[:32]


def _looks_at_proxies(major: int, minor: int) -> bool:
    """Whether NODE_USE_ENV_PROXY has an effect: from 22.21 and 24.0 on."""
    return major >= 24 or (major == 22 and minor >= 21)  # noqa: PLR2004 - versions
