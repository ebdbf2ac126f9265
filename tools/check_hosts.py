"""Fails where a lock, a constraint or a build file names the address of a package registry.

Packages are named by name and version alone, so that they install from whatever registry or mirror a machine is set up
with.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

WATCHED = (
    "constraints/*.txt",
    "*package.json",
    "*package-lock.json",
    "*pyproject.toml",
    "*plugin.lock",
    "*go.mod",
    "*.npmrc",
    "*pip.conf",
    "Makefile",
    ".ci/*",
    "tools/*.sh",
)
"""Git's pathspecs of the files in which an address would bind an installation to a place."""

_ADDRESS = re.compile(r"\w+://|--(?:extra-)?index-url|--find-links|--trusted-host|\"resolved\"", re.IGNORECASE)
_FUNDING = re.compile(r'^\s*"(?:url|funding)":')
"""What npm copies from a package about its author's donations: nothing is fetched from it."""


def findings(path: Path) -> list[str]:
    """Return one line, `path:line: text`, for each address in the file."""
    return [
        f"{path}:{number}: {line.strip()}"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if _ADDRESS.search(line) and not _FUNDING.match(line)
    ]


def main() -> int:
    """Look through every watched file that git knows. 1 when an address was found."""
    listed = subprocess.run(["git", "ls-files", "-z", "--", *WATCHED], check=True, capture_output=True)  # noqa: S607
    names = [name for name in listed.stdout.decode().split("\0") if name]
    found = [line for name in names if Path(name).exists() for line in findings(Path(name))]
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
