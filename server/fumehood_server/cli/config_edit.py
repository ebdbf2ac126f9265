"""Edits of `[[plugin]]` entries in fumehood.toml: append, remove, another path. The rest of the file stays as it is."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fumehood_sandbox import Level

from fumehood_server.config.load import load_config
from fumehood_server.config.operator_files import changing, unwritable
from fumehood_server.config.toml_source import TomlSource, read_toml
from fumehood_server.config.toml_text import toml_string
from fumehood_server.errors import ConfigError

NEW_FILE = """\
# What Fumehood serves, and what each plugin may touch. docs/configuration.md lists every key.
[server]
listen = ["unix:.fumehood/fumehood.sock"]
"""
"""A fumehood.toml without plugins. It ends in the table `[server]`."""
_PATH_LINE = re.compile(r"""(\bpath[ \t]*=[ \t]*)(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*')""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One `[[plugin]]` to append."""

    folder: Path
    """Absolute."""
    prefix: str = ""
    """Stands before the names of its tools."""
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
    allow_private: Sequence[str] = ()
    """As NAME=ADDRESS."""
    secrets: Sequence[str] = ()
    """Granted to all of its tools, as kind `mcp` needs it."""
    list_with_grants: bool = False
    """Whether it is asked for its tools with what this grants."""
    new_secrets: Mapping[str, tuple[str, Path | str]] = field(default_factory=dict)
    """`[secrets.NAME]` to append after it: the key, and the file or the variable."""

    def toml_text(self, base: Path) -> str:
        """The entry as TOML. Folders beneath `base`, where the file lies, are written relative to it."""
        lines = ["", "[[plugin]]", f"path = {_quoted(self.folder, base)}"]
        if self.prefix:
            lines.append(f"prefix = {json.dumps(self.prefix)}")
        if self.max_side_effects is not None:
            lines.append(f'max_side_effects = "{self.max_side_effects}"')
        elif not Level.READ.allows(self.asks_for):
            lines.append(f'# max_side_effects = "{self.asks_for}"      # it asks for this; without it: read')
        lines += self._granted(base)
        missing = [host for host in self.needed_hosts if host not in self.hosts]
        if missing:
            lines.append(f"# hosts = [{', '.join(map(json.dumps, missing))}]      # its tools require these")
        for tool, name in self.needed_secrets:
            lines += [f"# [plugin.tools.{tool}]", f'# secrets = ["{name}"]      # it requires this']
        lines += _new_secrets(self.new_secrets, base)
        return "\n".join(lines) + "\n"

    def _granted(self, base: Path) -> Iterator[str]:
        for key, paths in (("read", self.read), ("write", self.write)):
            if paths:
                yield f"{key} = [{', '.join(_quoted(path, base) for path in paths)}]"
        named = {"hosts": self.hosts, "build_hosts": self.build_hosts, "allow_private": self.allow_private}
        for key, names in {**named, "secrets": self.secrets}.items():
            if names:
                yield f"{key} = [{', '.join(map(json.dumps, names))}]"
        if self.list_with_grants:
            yield "list_with_grants = true"


def append_entry(path: Path, entry: Entry) -> str:
    """Append to the file, which is made when there is none, and return what was appended.

    The new file is loaded as a sidecar would before it replaces the old one, so that an invalid grant changes nothing.

    Raises:
        ConfigError: its folder is gone, the file with the entry would not be valid, or it can't be written.
    """
    if not entry.folder.is_dir():
        raise ConfigError(entry.folder, "is not there any more", hint="run the command again")
    with _changing(path) as real:
        old = _text_of(real) if real.exists() else NEW_FILE
        text = entry.toml_text(real.parent)
        if old and not old.endswith("\n"):
            text = "\n" + text
        _replace(real, old + text)
    return text


def names_plugin(path: Path, folder: Path) -> bool:
    """Whether the file has a `[[plugin]]` of this folder by now. One that can't be read may have.

    Raises:
        ConfigError: another process goes on changing it.
    """
    if not path.exists():
        return False
    with _changing(path) as real:
        try:
            return _find(read_toml(real), real.parent, folder) is not None
        except ConfigError:
            return True


def remove_entry(path: Path, plugin: Path) -> str:
    """Remove the `[[plugin]]` of this folder, with the tables and comments in it, and return what was removed.

    A comment that stands apart from the entry, by an empty line, stays.

    Raises:
        ConfigError: there is none any more, it is not written as a block of lines, the file without it would not be
            valid, or it can't be written.
    """
    with _changing(path) as real:
        source, index = _entry(real, plugin)
        lines = _text_of(real).splitlines(keepends=True)
        start, after = _span(source, index, lines)
        removed = "".join(lines[start:after])
        rest = after
        if start == 0 or not lines[start - 1].strip():  # one of the two gaps goes with it
            while rest < len(lines) and not lines[rest].strip():
                rest += 1
        kept = lines[:start] + lines[rest:]
        while kept and rest >= len(lines) and not kept[-1].strip():
            kept.pop()
        plugins = list(source.data["plugin"])
        del plugins[index]
        wanted = {**source.data, "plugin": plugins}
        if not plugins:
            del wanted["plugin"]
        _change(real, "".join(kept), wanted)
    return removed


def change_path(path: Path, plugin: Path, folder: Path) -> None:
    """Have the `[[plugin]]` of this folder name another one.

    Raises:
        ConfigError: as `remove_entry`.
    """
    with _changing(path) as real:
        source, index = _entry(real, plugin)
        lines = _text_of(real).splitlines(keepends=True)
        at = source.line(("plugin", index, "path")) - 1
        lines[at] = _PATH_LINE.sub(lambda found: found[1] + _quoted(folder, real.parent), lines[at], count=1)
        plugins = [dict(each) for each in source.data["plugin"]]
        plugins[index]["path"] = str(folder.relative_to(real.parent) if folder.is_relative_to(real.parent) else folder)
        _change(real, "".join(lines), {**source.data, "plugin": plugins})


def grant_secrets(
    path: Path, plugin: Path, names: Sequence[str], new_secrets: Mapping[str, tuple[str, Path | str]]
) -> None:
    """Grant the `[[plugin]]` of this folder more secrets, and append the `[secrets.NAME]` that are new.

    Raises:
        ConfigError: as `remove_entry`.
    """
    with _changing(path) as real:
        _grant_secrets(real, plugin, names, new_secrets)


def _grant_secrets(
    path: Path, plugin: Path, names: Sequence[str], new_secrets: Mapping[str, tuple[str, Path | str]]
) -> None:
    source, index = _entry(path, plugin)
    lines = _text_of(path).splitlines(keepends=True)
    plugins = [dict(each) for each in source.data["plugin"]]
    known = plugins[index].get("secrets")
    plugins[index]["secrets"] = [*(known or ()), *names]
    text = f"secrets = [{', '.join(map(json.dumps, plugins[index]['secrets']))}]\n"
    at = source.line(("plugin", index, "path" if known is None else "secrets"))
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    lines[at - (known is not None) : at] = [text]
    tables = "\n".join(_new_secrets(new_secrets, path.parent))
    more = tomllib.loads(tables).get("secrets", {})
    wanted = {**source.data, "plugin": plugins}
    if more:
        lines.append(tables + "\n")
        wanted["secrets"] = {**source.data.get("secrets", {}), **more}
    _change(path, "".join(lines), wanted)


def _new_secrets(secrets: Mapping[str, tuple[str, Path | str]], base: Path) -> Iterator[str]:
    for name, (key, place) in secrets.items():
        shown = _quoted(place, base) if isinstance(place, Path) else json.dumps(place)
        yield from ("", f"[secrets.{json.dumps(name)}]", f"{key} = {shown}")


@contextlib.contextmanager
def _changing(path: Path) -> Iterator[Path]:
    try:
        with changing(path) as real:
            yield real
    except OSError as error:
        raise unwritable(path, error) from error


def _entry(path: Path, plugin: Path) -> tuple[TomlSource, int]:
    """The file, and which of its `[[plugin]]` is of this folder."""
    source = read_toml(path)
    index = _find(source, path.parent, plugin)
    if index is None:
        hint = "it has been changed since: look at it, and try again"
        raise ConfigError(path, f"names no plugin in {plugin} any more", hint=hint)
    return source, index


def _find(source: TomlSource, base: Path, plugin: Path) -> int | None:
    for index, each in enumerate(source.data.get("plugin", ())):
        if (base / each["path"]).resolve() == plugin:
            return index
    return None


def _span(source: TomlSource, index: int, lines: list[str]) -> tuple[int, int]:
    """Where an entry begins and ends in the lines: with the comments that follow its last value directly."""
    own = ("plugin", index)
    owned = {line for key, line in source.lines.items() if key[:2] == own}
    start = source.lines.get(own, 1)
    others = [line for key, line in source.lines.items() if key[:2] != own and line > start and line not in owned]
    end = min(others) - 1 if others else len(lines)
    # A value may go over several lines: what is neither empty nor a comment up to the next table is part of it.
    after = max(at for at in range(start - 1, end) if lines[at].strip() and not lines[at].lstrip().startswith("#")) + 1
    while after < end and lines[after].lstrip().startswith("#"):
        after += 1
    return start - 1, after


def _change(path: Path, text: str, wanted: Mapping[str, object]) -> None:
    """Write the text if it means what is wanted and nothing else. What a person wrote may be written in many ways."""
    try:
        same = tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        raise ConfigError(path, "can't be changed by line as it is written", hint="change its [[plugin]] by hand")
    _replace(path, text)


def _replace(path: Path, text: str) -> None:
    """Put a new file in place of the old one, once it was loaded as a sidecar would."""
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        problem = "can't hold a path that is not UTF-8, which TOML is"
        raise ConfigError(path, problem, hint="rename the folder or file") from error
    try:
        new.write_bytes(data)
        if path.exists():
            new.chmod(path.stat().st_mode & 0o777)
        load_config(new)
        new.replace(path)
    except ConfigError as error:
        raise ConfigError(path, error.problem, line=error.line, key=error.key, hint=error.hint) from error
    finally:
        new.unlink(missing_ok=True)


def _text_of(path: Path) -> str:
    with path.open(newline="") as file:
        return file.read()


def _quoted(path: Path, base: Path) -> str:
    shown = path.relative_to(base) if path.is_relative_to(base) else path
    return toml_string(str(shown))
