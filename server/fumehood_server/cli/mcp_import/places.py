"""Paths and hosts that a server's arguments and variables name: what it can be asked about to be granted."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from fumehood_server.cli.mcp_import.launchers import NotImportableError

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/proc", "/sys", "/dev", "/etc", "/boot")
_MAX_PATH = 4096


@dataclass(frozen=True, slots=True)
class NamedPath:
    """A path that the configuration names."""

    path: Path
    """Without symlinks."""
    written: Path
    """As it is written: absolute."""
    where: str
    """Such as "argument 2" or "the variable X"."""
    is_folder: bool
    is_there: bool = True
    """False: it could be made, and so could be granted."""

    @property
    def folder(self) -> Path:
        """What is granted for writing: the folder itself, or the one around a file."""
        return self.path if self.is_folder else self.path.parent


@dataclass(frozen=True, slots=True)
class NamedHost:
    """A host that the configuration names."""

    host: str
    """As NAME:PORT."""
    where: str
    private: tuple[str, ...] = ()
    """Addresses that are not public, to which the name leads: NAME=ADDRESS each."""


class PlaceProblem(StrEnum):
    """Why a place is not granted for being named."""

    UNREADABLE = "can't be looked at: nothing is granted for it"
    HOME = "is or holds your whole home"
    NO_FILE = "is neither a file nor a folder: it can't be granted"
    MISSING = "is not there: nothing is granted for it"
    MISSING_AT_HOME = "is not there, and the folder around it is or holds your whole home"
    NO_HTTP = "is not reached: from inside, HTTP and CONNECT by HTTPS_PROXY are all"
    PRIVATE = "is of this machine or network"


_TODO = {
    PlaceProblem.HOME: "grant what is needed of it by hand",
    PlaceProblem.MISSING_AT_HOME: "name a file in a folder of its own, and import again",
    PlaceProblem.PRIVATE: "grant it by hand, with allow_private",
}


@dataclass(frozen=True, slots=True)
class RefusedPlace:
    """A path or host that the configuration names, and that nobody is asked about."""

    name: str
    """The path as it is written, or the host as NAME:PORT."""
    where: str
    problem: PlaceProblem

    @property
    def text(self) -> str:
        """What it is, for whoever imports the server."""
        todo = _TODO.get(self.problem)
        return f"{self.name}, {self.where}, {self.problem}" + (f": {todo}" if todo else "")


@dataclass(slots=True)
class Places:
    """What was found, each once."""

    paths: list[NamedPath]
    hosts: list[NamedHost]
    refused: list[RefusedPlace]


def value_of(text: str) -> str:
    """What an argument names: of --option=VALUE the value."""
    return text.partition("=")[2] if text.startswith("-") and "=" in text else text


def with_value(text: str, change: Callable[[str], str]) -> str:
    """An argument with what it names changed."""
    value = value_of(text)
    return text.removesuffix(value) + change(value)


def absolute(text: str, base: Path | None, home: Path) -> str:
    """A path that starts at the home or at the host's working folder, which is another inside; else the text as it is.

    Raises:
        NotImportableError: where it starts isn't known.
    """
    if text == "~" or text.startswith("~/"):
        return str(home / text[2:])
    if text in {".", ".."} or text.startswith(("./", "../")):
        if base is None:
            what = f'where "{text}" starts is not known here'
            raise NotImportableError("relative_path", what, "Give --workspace FOLDER, or write an absolute path.")
        return os.path.normpath(base / text)
    return text


def find_places(texts: Iterable[tuple[str, str]], home: Path) -> Places:
    """Look through texts, each with where it stands."""
    found = Places([], [], [])
    for where, text in texts:
        value = value_of(text)
        if value.startswith("/") and len(value) <= _MAX_PATH:
            _add_path(Path(value), where, home, found)
        elif "://" in value:
            _add_host(value, where, found)
    return found


def _add_path(path: Path, where: str, home: Path, found: Places) -> None:
    try:
        real = path.resolve(strict=True)
    except FileNotFoundError:
        _add_missing(path, where, home, found)
        return
    except (OSError, RuntimeError):
        found.refused.append(RefusedPlace(str(path), where, PlaceProblem.UNREADABLE))
        return
    if any(real.is_relative_to(each) for each in _SYSTEM):
        return  # seen by every sandbox, or by none
    if home.resolve().is_relative_to(real):
        found.refused.append(RefusedPlace(str(path), where, PlaceProblem.HOME))
        return
    if not (real.is_dir() or real.is_file()):
        found.refused.append(RefusedPlace(str(path), where, PlaceProblem.NO_FILE))
        return
    if all(each.path != real for each in found.paths):
        found.paths.append(NamedPath(real, path, where, real.is_dir()))


def _add_missing(path: Path, where: str, home: Path, found: Places) -> None:
    """A path that the server may mean to make. One with a suffix is a file, and its folder is what can be granted."""
    try:
        real = path.resolve()
    except (OSError, RuntimeError):
        found.refused.append(RefusedPlace(str(path), where, PlaceProblem.UNREADABLE))
        return
    named = NamedPath(real, path, where, not real.suffix, is_there=False)
    above = next(each for each in (real, *real.parents) if each.exists())
    # Directly beneath the root it is as often a part of a URL as a path.
    if above == Path("/") or not above.is_dir() or any(real.is_relative_to(each) for each in _SYSTEM):
        found.refused.append(RefusedPlace(str(path), where, PlaceProblem.MISSING))
    elif home.resolve().is_relative_to(named.folder):
        found.refused.append(RefusedPlace(str(path), where, PlaceProblem.MISSING_AT_HOME))
    elif all(each.path != real for each in found.paths):
        found.paths.append(named)


def _add_host(value: str, where: str, found: Places) -> None:
    try:
        split = urlsplit(value)
        name, port = split.hostname, split.port
    except ValueError:
        return
    if not name:
        return
    if split.scheme not in _PORTS:
        found.refused.append(RefusedPlace(f"{split.scheme}://{name}", where, PlaceProblem.NO_HTTP))
        return
    host = f"[{name}]" if ":" in name else name
    host += f":{port or _PORTS[split.scheme]}"
    if _is_private(name):
        found.refused.append(RefusedPlace(host, where, PlaceProblem.PRIVATE))
        return
    if all(each.host != host for each in found.hosts):
        found.hosts.append(NamedHost(host, where))


def _is_private(name: str) -> bool:
    if name == "localhost" or name.endswith((".localhost", ".local", ".internal")):
        return True
    try:
        return not ipaddress.ip_address(name).is_global
    except ValueError:
        return False
