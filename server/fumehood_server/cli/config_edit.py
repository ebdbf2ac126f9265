"""Appends a `[[plugin]]` entry to fumehood.toml, and leaves the rest of the file as it is."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fumehood_sandbox import Level

from fumehood_server.config.config import load_config
from fumehood_server.errors import ConfigError

_HEADER = """\
# What Fumehood serves, and what each plugin may touch. docs/configuration.md lists every key.
[server]
listen = ["unix:.fumehood/fumehood.sock"]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One `[[plugin]]` to append."""

    folder: Path
    """Absolute."""
    max_side_effects: Level | None
    """None leaves the default, with a comment that says what the plugin asks for."""
    asks_for: Level
    read: Sequence[Path] = ()
    write: Sequence[Path] = ()
    hosts: Sequence[str] = ()
    build_hosts: Sequence[str] = ()
    needed_hosts: Sequence[str] = ()
    """Hosts that its tools require, as `NAME:PORT`: a comment lists those that aren't granted."""
    needed_secrets: Sequence[tuple[str, str]] = ()
    """Tools and the secrets that they require, likewise."""

    def toml_text(self, base: Path) -> str:
        """The entry as TOML. Folders beneath `base`, where the file lies, are written relative to it."""
        lines = ["", "[[plugin]]", f"path = {_quoted(self.folder, base)}"]
        if self.max_side_effects is not None:
            lines.append(f'max_side_effects = "{self.max_side_effects}"')
        elif not Level.READ.allows(self.asks_for):
            lines.append(f'# max_side_effects = "{self.asks_for}"      # it asks for this; without it: read')
        for key, paths in (("read", self.read), ("write", self.write)):
            if paths:
                lines.append(f"{key} = [{', '.join(_quoted(path, base) for path in paths)}]")
        for key, hosts in (("hosts", self.hosts), ("build_hosts", self.build_hosts)):
            if hosts:
                lines.append(f"{key} = [{', '.join(json.dumps(host) for host in hosts)}]")
        missing = [host for host in self.needed_hosts if host not in self.hosts]
        if missing:
            lines.append(f"# hosts = [{', '.join(map(json.dumps, missing))}]      # its tools require these")
        for tool, name in self.needed_secrets:
            lines += [f"# [plugin.tools.{tool}]", f'# secrets = ["{name}"]      # it requires this']
        return "\n".join(lines) + "\n"


def append_entry(path: Path, entry: Entry) -> str:
    """Append to the file, which is made when there is none, and return what was appended.

    The new file is loaded as a sidecar would before it replaces the old one, so that an invalid grant changes nothing.

    Raises:
        ConfigError: the file with the entry would not be valid, or it can't be written.
    """
    try:
        old = path.read_text() if path.exists() else _HEADER
        text = entry.toml_text(path.parent)
        if old and not old.endswith("\n"):
            text = "\n" + text
        new = path.with_name(f".{path.name}.{os.getpid()}.new")
        try:
            new.write_text(old + text)
            if path.exists():
                new.chmod(path.stat().st_mode & 0o777)
            load_config(new)
            new.replace(path)
        except ConfigError as error:
            raise ConfigError(path, error.problem, line=error.line, key=error.key, hint=error.hint) from error
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(path, f"can't be written: {error.strerror}", hint="make its folder writable") from error
    return text


def _quoted(path: Path, base: Path) -> str:
    shown = path.relative_to(base) if path.is_relative_to(base) else path
    # JSON's strings are TOML's basic strings, bar DEL, which TOML wants escaped.
    return json.dumps(str(shown), ensure_ascii=False).replace("\x7f", "\\u007f")
