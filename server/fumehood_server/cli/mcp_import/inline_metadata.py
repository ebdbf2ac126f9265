"""Inline metadata of a Python script (PEP 723): the packages that it says it depends on."""

from __future__ import annotations

import tomllib
from pathlib import Path

from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.plugins.environments.dependencies import DependencyError, canonical_dependencies

_MAX_SCRIPT_BYTES = 4 * 1024 * 1024
_BEGIN = "# /// script"
_END = "# ///"


def inline_dependencies(script: Path) -> tuple[str, ...]:
    """`dependencies` of the script's block. Empty: it has none.

    Raises:
        NotImportableError: the block is malformed, or one of them can't be taken.
    """
    try:
        with script.open("rb") as file:
            lines = file.read(_MAX_SCRIPT_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return ()
    if lines.count(_BEGIN) > 1:
        raise _refusal(script, "there is more than one")
    block = _block(lines)
    try:
        declared = tomllib.loads(block).get("dependencies", [])
        if not (isinstance(declared, list) and all(isinstance(each, str) for each in declared)):
            raise _refusal(script, "`dependencies` must be an array of strings")
        return canonical_dependencies(declared)
    except tomllib.TOMLDecodeError as error:
        raise _refusal(script, str(error)) from error
    except DependencyError as error:
        raise _refusal(script, error.problem) from error


def _block(lines: list[str]) -> str:
    """The text between the first beginning and the last end of the comments that follow. Empty: there is no block."""
    if _BEGIN not in lines:
        return ""
    after = lines[lines.index(_BEGIN) + 1 :]
    length = next((n for n, each in enumerate(after) if each != "#" and not each.startswith("# ")), len(after))
    comments = after[:length]
    if _END not in comments:  # no block, says the PEP: a comment
        return ""
    last = length - 1 - comments[::-1].index(_END)
    return "\n".join(each[2:] for each in comments[:last])


def _refusal(script: Path, problem: str) -> NotImportableError:
    todo = "Correct it: packages of the index, by their names."
    return NotImportableError("not_resolved", f"the `# /// script` block of {script}: {problem}", todo)
