"""Reader of dotenv files, which VS Code and Cursor name in `envFile`."""

from __future__ import annotations

import re
from pathlib import Path

from fumehood_server.cli.mcp_import.launchers import NotImportableError

_MAX_BYTES = 1024 * 1024
_LINE_ENDS = re.compile(r"\r\n?|\n")
_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_.]*)\s*[=:]\s*(?P<value>.*)")
_QUOTES = "\"'`"
_QUOTED = re.compile(r"""(?P<quote>["'`])(?P<text>.*)(?P=quote)""")


def read_environment_file(path: Path) -> dict[str, str]:
    r"""The variables of the file, as VS Code's `parseEnvFile` reads them. Lines that are none are passed over.

    Quotation marks are ", ' and `; between " alone, `\n` and `\r` are line ends. An unquoted # begins a comment.

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
    for line in _LINE_ENDS.split(text.decode("utf-8-sig", errors="replace")):
        parsed = _LINE.fullmatch(line.strip())
        if parsed:
            found[parsed["name"]] = _value(parsed["value"])
    return found


def _value(text: str) -> str:
    """What stands behind the sign, without its comment and its quotation marks."""
    text = text[: _comment_start(text)].strip()
    quoted = _QUOTED.fullmatch(text)
    if not quoted:
        return text
    value = quoted["text"]
    return value.replace("\\n", "\n").replace("\\r", "\r") if quoted["quote"] == '"' else value


def _comment_start(text: str) -> int:
    quote = ""
    for index, character in enumerate(text):
        if quote:
            if character == quote and text[index - 1] != "\\":
                quote = ""
        elif character in _QUOTES:
            quote = character
        elif character == "#":
            return index
    return len(text)
