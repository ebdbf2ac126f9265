"""A program of this machine that a server is started by: what a sandbox shows of it, what is copied, and its script."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path, PurePath

from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.mcp_import.places import absolute
from fumehood_server.plugins.launch.executables import find_executable
from fumehood_server.plugins.launch.program import SEARCH_PATH

_MAX_PROGRAM_BYTES = 512 * 1024 * 1024
_ELF = b"\x7fELF"
_HEAD_BYTES = 1024
"""Of a program, with its first line; Linux reads 256 bytes of it (execve(2))."""
_SHOWN = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
"""By every sandbox."""
_PYTHONS = {"python", "python3"}
"""The sidecar's own, for a plugin of kind mcp, whatever the PATH has."""
_SINGLE_FILES = {"node", "nodejs", "bun", "deno"}
"""Interpreters that run without what lies around them."""
_INTERPRETERS = {*_PYTHONS, *_SINGLE_FILES, "ruby", "java", "php", "perl"}
_SHIMS = "shims"
"""The folder of pyenv's, rbenv's and asdf's scripts that look up which version they start."""
_LONG_PATH = b"'''exec' "
"""Begins the second line of pip's scripts where the interpreter's path is too long for the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnProgram:
    """How a server is started by a program of this machine."""

    command: str
    """The first word of the plugin's command: a name, an absolute path, or the copy's."""
    script: Path | None = None
    """What an interpreter is told to run: absolute."""
    copied: Path | None = None
    """The program, where it is copied into the plugin."""
    notes: tuple[str, ...] = ()


def find_program(program: str, arguments: tuple[str, ...], base: Path | None) -> OwnProgram:
    """Look a program up: one on the PATH or that every sandbox shows is named, a compiled one from elsewhere copied.

    `base` is where relative paths start.

    Raises:
        NotImportableError: there is none, it needs what no sandbox shows, or which script it runs isn't plain.
    """
    if "/" not in program:
        return _on_path(program, arguments)
    path = Path(absolute(program, base, Path.home()))
    if not path.is_absolute():
        path = (base or Path.cwd()) / path
    name = path.name
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise NotImportableError("program", f"{path} is not a program of this machine", "Correct the path.")
    if _is_python(name):
        return _by_own_python(path, arguments)
    in_path = shutil.which(name)
    if in_path and Path(in_path).resolve() == path.resolve():
        return _on_path(name, arguments)
    is_shown = _is_shown(path.resolve())
    is_binary = _head(path).startswith(_ELF)
    if is_shown and (is_binary or _runs_inside(path)):
        return OwnProgram(command=str(path), script=_script(name, arguments))
    if not is_binary or name.startswith("python") or path.stat().st_size > _MAX_PROGRAM_BYTES:
        raise _needs_more(path)
    if is_interpreter(name) and name not in _SINGLE_FILES:
        # Named, it is shown with the folders of its library; a copy would not find them.
        return OwnProgram(command=str(path), script=_script(name, arguments))
    return OwnProgram(command=f"./bin/{name}", script=_script(name, arguments), copied=path)


def is_interpreter(program: str) -> bool:
    """Whether a program, by its name or path, runs a script that its first argument names."""
    name = PurePath(program).name
    return name in _INTERPRETERS or _is_python(name)


def _is_python(name: str) -> bool:
    return name in _PYTHONS or name.startswith("python3.")


def _on_path(name: str, arguments: tuple[str, ...]) -> OwnProgram:
    found = shutil.which(name)
    if found is None:
        raise NotImportableError("program", f'"{name}" was not found', "Install it, or correct the name.")
    if name not in _PYTHONS and not _runs_inside(Path(found)):
        if _is_python(name):
            return _by_own_python(Path(found), arguments)
        raise _needs_more(Path(found))
    return OwnProgram(command=name, script=_script(name, arguments))


def _by_own_python(path: Path, arguments: tuple[str, ...]) -> OwnProgram:
    """The sidecar's Python in place of another, or of the same one in a virtual environment, which no sandbox shows."""
    name = path.name if path.name in _PYTHONS else "python3"
    note = (
        f"it runs with the sidecar's Python, not {path}, and of packages it has those alone that its project or script "
        "says it depends on"
    )
    is_same = path.resolve() == Path(sys.executable).resolve() and not (path.parent.parent / "pyvenv.cfg").exists()
    return OwnProgram(command=name, script=_script(name, arguments), notes=() if is_same else (note,))


def _needs_more(path: Path) -> NotImportableError:
    todo = (
        "Name its package with uvx or npx. Of a script of yours, write the interpreter in `command` and the script's "
        "absolute path as the first of `args`."
    )
    if is_interpreter(path.name):
        todo = f"Write the absolute path of the {path.name} that it starts, or name the server's package with npx."
    return NotImportableError("program", f"{path} needs what lies around it, which no sandbox shows", todo)


def _script(program: str, arguments: tuple[str, ...]) -> Path | None:
    if not is_interpreter(program):
        return None
    script = next((each for each in arguments if not each.startswith("-")), "")
    if not script.startswith("/") or not Path(script).is_file():
        what = f"which script {program} runs isn't plain" if not script else f"its script {script} is not there"
        raise NotImportableError("program", what, "Write the script's absolute path as the first argument.")
    return Path(script)


def _is_shown(path: Path) -> bool:
    return any(path.is_relative_to(each) for each in _SHOWN)


def _head(path: Path) -> bytes:
    """How a program begins. Empty: it may be run, but not read."""
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError:
        return b""


def _runs_inside(path: Path) -> bool:
    """Whether a sandbox shows what a program needs that is named and not copied: of a script, interpreter and packages.

    What a compiled one needs beyond its own folders isn't known here.
    """
    first, _, rest = _head(path).partition(b"\n")
    if not first.startswith(b"#!"):
        return True
    real = path.resolve()
    interpreter = _interpreter(os.fsdecode(first[2:]).split())
    found = find_executable(str(path), Path(os.devnull), search_path=SEARCH_PATH)
    shown = (*_SHOWN, *(each.target for each in found.mounts)) if found else _SHOWN
    if not interpreter or not all(
        any(each.is_relative_to(top) for top in shown) for each in (interpreter, interpreter.resolve())
    ):
        return False
    # Packages beside it are not found: a virtual environment's and a user's only by files that aren't shown.
    uses_packages = interpreter.name.startswith("python") or rest.startswith(_LONG_PATH) or "node_modules" in real.parts
    return _is_shown(real) or not (uses_packages or real.parent.name == _SHIMS)


def _interpreter(words: list[str]) -> Path | None:
    """What a script's first line names, which env(1) looks up on the PATH inside. None: it isn't there."""
    if words and PurePath(words[0]).name == "env":
        name = next((each for each in words[1:] if not each.startswith("-") and "=" not in each), "")
        located = shutil.which(name, path=SEARCH_PATH)
        return Path(located) if located else None
    return Path(words[0]) if words and os.access(words[0], os.X_OK) else None
