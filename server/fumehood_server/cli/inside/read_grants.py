"""Runs inside a sandbox, as a plugin's user: tries to open granted paths, and prints those that can't be, as JSON.

Arguments: the paths for reading, "--", the paths for writing. Nothing of ours is imported: nothing of ours is there.
"""

import json
import os
import sys

MAX_ENTRIES = 1000
"""Of each folder: this is to find a wrong owner or mode, not to walk a tree."""


def problem_of(path: str) -> str:
    """Why it can't be read. Empty: it can."""
    try:
        if not os.path.isdir(path):  # noqa: PTH112 - plain text paths here
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            return ""
        with os.scandir(path) as entries:
            names = [entry.name for _, entry in zip(range(MAX_ENTRIES), entries, strict=False)]
    except OSError as error:
        return error.strerror or str(error)
    closed = [name for name in sorted(names) if not os.access(f"{path}/{name}", os.R_OK)]
    if not closed:
        return ""
    return f"{len(closed)} of {len(names)} entries can't be read, such as {closed[0]}"


def main() -> None:
    """Try all."""
    split = sys.argv.index("--")
    read, write = sys.argv[1:split], sys.argv[split + 1 :]
    found = {path: problem for path in (*read, *write) if (problem := problem_of(path))}
    for path in write:
        if path not in found and not os.access(path, os.W_OK):
            found[path] = "it can't be written to"
    sys.stdout.write(json.dumps({"user": os.geteuid(), "problems": found}))


main()
