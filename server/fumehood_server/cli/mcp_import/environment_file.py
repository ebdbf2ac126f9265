"""Reader of dotenv files, which VS Code and Cursor name in `envFile`."""

from __future__ import annotations

import re
from pathlib import Path

from fumehood_server.cli.mcp_import.launchers import NotImportableError

_MAX_BYTES = 1024 * 1024
_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(?P<value>.*)")
_QUOTED = re.compile(r"""(?P<quote>["'])(?P<text>.*?)(?P=quote)\s*(?:#.*)?""")


def read_environment_file(path: Path) -> dict[str, str]:
    """The variables of the file. Lines that are none are passed over, as by those who read it otherwise.

    Raises:
        NotImportableError: it can't be read.
    """
    try:
        if not path.is_file():
            raise NotImportableError("environment_file", f"its envFile {path} is not there", "Create it.")
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
    except OSError as error:
        what = f"its envFile {path} can't be read: {error.strerror}"
        raise NotImportableError("environment_file", what, "Make it readable.") from error
    if len(text) > _MAX_BYTES or b"\0" in text:
        raise NotImportableError("environment_file", f"its envFile {path} is no text of 1 MiB", "Name another.")
    found = {}
    for line in text.decode(errors="replace").splitlines():
        parsed = _LINE.fullmatch(line.strip())
        if parsed:
            quoted = _QUOTED.fullmatch(parsed["value"])
            value = quoted["text"] if quoted else re.sub(r"\s+#.*", "", parsed["value"])
            found[parsed["name"]] = value
    return found
