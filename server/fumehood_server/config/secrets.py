"""`[secrets]` of the configuration, and whether a tool may have what it requires of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fumehood_server.config.config_file import ConfigFile
from fumehood_server.config.grants import GrantError, check_links
from fumehood_server.config.toml_source import TomlSource
from fumehood_server.model.capability import valid_secret_name
from fumehood_server.model.nearest import nearest
from fumehood_server.model.tool import Reason, ToolDefinition
from fumehood_server.secrets import SecretSource, SecretUnavailableError

if TYPE_CHECKING:
    from fumehood_server.config.config import PluginConfig

_SHOWN_TO_ALL = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
"""Every sandbox's programs and libraries come from there."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ONE_OF_TWO = 'file = "path" or env = "VARIABLE"'


def read_secrets(file: ConfigFile, source: TomlSource, folder: Path) -> dict[str, SecretSource]:
    """The secrets of the file. Their values are not read here.

    Raises:
        ConfigError: a table is wrong, or a tool is granted a secret that there is none of.
    """
    found: dict[str, SecretSource] = {}
    for name, table in file.secrets.items():
        key = ("secrets", name)
        if not valid_secret_name(name):
            hint = "1 to 64 of A-Z, a-z, 0-9, _, . and -, starting with a letter or _"
            raise source.problem(key, f'"{name[:80]}" can\'t be the name of a secret', hint)
        if (table.file is None) == (table.env is None):
            raise source.problem(key, f"[secrets.{name}] needs one place to read it from", f"write {_ONE_OF_TWO}")
        if table.env is not None and not _VARIABLE.fullmatch(table.env):
            problem = f'"{table.env}" is not the name of an environment variable'
            raise source.problem((*key, "env"), problem, "the variable's name, not its value")
        if table.file is not None and "\0" in table.file:
            raise source.problem((*key, "file"), "a path can't hold NUL")
        path = folder / table.file if table.file is not None else None
        found[name] = SecretSource(name=name, file=path, variable=table.env or "")
    for index, plugin in enumerate(file.plugin):
        for tool, grant in plugin.tools.items():
            for place, name in enumerate(grant.secrets):
                if name not in found:
                    problem = f'there is no secret "{name}" for `secrets` in [plugin.tools.{tool}]'
                    hint = nearest(name, found) if found else f"write [secrets.{name}] with {_ONE_OF_TWO}"
                    raise source.problem(("plugin", index, "tools", tool, "secrets", place), problem, hint)
    return found


def check_secret_links(
    secrets: Mapping[str, SecretSource], plugins: Sequence[PluginConfig], source: TomlSource, folder: Path
) -> None:
    """Refuse a secret's file that sandboxes are shown, or that is found through a symlink which a plugin can turn.

    Raises:
        ConfigError: there is one.
    """
    writable = [path for plugin in plugins for path in plugin.grants.write]
    shown = [*(plugin.path for plugin in plugins), *map(Path, _SHOWN_TO_ALL)]
    for name, secret in secrets.items():
        if secret.file is not None:
            real = secret.file.resolve()
            within = next((each for each in shown if real.is_relative_to(each.resolve())), None)
            if within is not None:
                problem = f'[secrets.{name}]: "{real}" lies in "{within}", which sandboxes are shown'
                raise source.problem(("secrets", name, "file"), problem, "keep it in a folder of its own")
            try:
                check_links("file", [str(secret.file)], folder=folder, writable=writable)
            except GrantError as exc:
                raise source.problem(("secrets", name, "file"), f"[secrets.{name}]: {exc.problem}", exc.hint) from exc


def not_granted(definition: ToolDefinition, name: str) -> Reason:
    """Why a tool can't have a secret that it requires."""
    message = f"{definition.name} requires the secret {name}, which it is not granted"
    return Reason("secret_not_granted", message, f'secrets = ["{name}"] in its [plugin.tools.{definition.name}]')


def look_up(secret: SecretSource) -> Reason | None:
    """Why a secret can't be had now. None when it can."""
    try:
        secret.check()
    except SecretUnavailableError as exc:
        if exc.code == "secret_missing":
            return Reason("secret_missing", exc.problem, exc.remedy)
        return Reason("secret_unusable", exc.problem, exc.remedy)
    return None
