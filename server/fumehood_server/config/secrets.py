"""`[secrets]` of the configuration: each secret's source, and checks on where its file lies."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from fumehood_sandbox import authorities_runtime, system_runtime

from fumehood_server.config.config_file import ConfigFile, SecretTable
from fumehood_server.config.grants import GrantError, check_links
from fumehood_server.config.mounts import read_mounts
from fumehood_server.config.toml_source import Key, TomlSource
from fumehood_server.model.capability import valid_secret_name
from fumehood_server.model.nearest import nearest
from fumehood_server.secrets import SecretSource

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ONE_OF_TWO = 'file = "path" or env = "VARIABLE"'


def read_secrets(file: ConfigFile, source: TomlSource, folder: Path) -> dict[str, SecretSource]:
    """The secrets of the file. Their values are not read here.

    Raises:
        ConfigError: a table is wrong, or a tool is granted a secret that isn't defined.
    """
    found: dict[str, SecretSource] = {}
    for name, table in file.secrets.items():
        key = ("secrets", name)
        if not valid_secret_name(name):
            hint = "1 to 64 of A-Z, a-z, 0-9, _, . and -, starting with a letter or _"
            raise source.problem(key, f'"{name[:80]}" can\'t be the name of a secret', hint)
        found[name] = secret_source(f"secrets.{name}", table, source, folder, name=name)
    for place, name in granted_secrets(file):
        if name not in found:
            where = f"[plugin.tools.{place[3]}]" if "tools" in place else "[[plugin]]"
            problem = f'there is no secret "{name}" for `secrets` in {where}'
            hint = nearest(name, found) if found else f"write [secrets.{name}] with {_ONE_OF_TWO}"
            raise source.problem(place, problem, hint)
    return found


def granted_secrets(file: ConfigFile) -> Iterator[tuple[Key, str]]:
    """Each name in a `secrets` of a plugin or of one of its tools, after its key."""
    for index, plugin in enumerate(file.plugin):
        for number, name in enumerate(plugin.secrets):
            yield ("plugin", index, "secrets", number), name
        for tool, grant in plugin.tools.items():
            for number, name in enumerate(grant.secrets):
                yield ("plugin", index, "tools", tool, "secrets", number), name


def secret_source(key: str, table: SecretTable, source: TomlSource, folder: Path, *, name: str = "") -> SecretSource:
    """The place that a table with the dotted key `key` names.

    Raises:
        ConfigError: it names none, two, or what can't be one.
    """
    place = tuple(key.split(".", 1))
    if (table.file is None) == (table.env is None):
        raise source.problem(place, f"[{key}] needs one place to read it from", f"write {_ONE_OF_TWO}")
    if table.env is not None and not _VARIABLE.fullmatch(table.env):
        problem = f'"{table.env}" is not the name of an environment variable'
        raise source.problem((*place, "env"), problem, "the variable's name, not its value")
    if table.file is not None and "\0" in table.file:
        raise source.problem((*place, "file"), "a path can't hold NUL")
    path = folder / table.file if table.file is not None else None
    return SecretSource(name=name or key, file=path, variable=table.env or "")


def check_secret_links(
    files: Mapping[str, Path],
    source: TomlSource,
    folder: Path,
    *,
    public: Collection[str],
    plugin_folders: Sequence[Path],
    writable: Sequence[str],
) -> None:
    """Refuse a secret's file that is mounted in sandboxes, or that is reached by a symlink which a plugin can replace.

    `files` are by the dotted key of fumehood.toml that names each, and those in `public` may be seen. `plugin_folders`
    are mounted in sandboxes; plugins may write in `writable`.

    Raises:
        ConfigError: there is one.
    """
    shown = (*system_runtime(), *authorities_runtime())
    mounted = [*plugin_folders, *(Path(each.source) for each in shown if each.source)]
    mounts = read_mounts()
    for key, file in files.items():
        place, real = tuple(key.split(".")), file.resolve()
        within = next((each for each in mounted if mounts.holds(each.resolve(), real)), None)
        if within is not None and key not in public:
            problem = f'`{key}`: "{real}" lies in "{within}", which sandboxes are shown'
            raise source.problem(place, problem, "keep it in a folder of its own")
        try:
            check_links("file", [str(file)], folder=folder, writable=writable)
        except GrantError as exc:
            raise source.problem(place, f"`{key}`: {exc.problem}", exc.hint) from exc
