"""Grants, held once more against what is known when the sidecar begins to serve: its listeners and its middleware."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fumehood_server.config.config import CONFIG_NAME, SidecarConfig
from fumehood_server.config.grants import GrantError, check_writable, protected_code
from fumehood_server.config.listeners import ReachableListenerError, check_unreachable
from fumehood_server.errors import ConfigError


def check_served(config: SidecarConfig) -> None:
    """Refuse grants that reach a listener of the command line's, or what was imported since they were read.

    Middleware is imported after the configuration is read, and with it files of which nobody knew where they lie.

    Raises:
        ConfigError: there is one; the line is that of its [[plugin]].
    """
    path = config.path or config.folder / CONFIG_NAME
    try:
        check_unreachable(config)
    except ReachableListenerError as exc:
        key, line = (exc.plugin, *exc.key), config.plugins[exc.plugin].line
        raise ConfigError(path, exc.problem, line=line, key=_dotted(*key), hint=exc.hint) from exc
    if not config.middleware or not any(each.grants.write for each in config.plugins):
        return
    code = protected_code()
    for index, plugin in enumerate(config.plugins):
        try:
            check_writable(tuple(map(Path, plugin.grants.write)), code)
        except GrantError as exc:
            problem = f"`write` in [[plugin]]: {exc.problem}"
            raise ConfigError(path, problem, line=plugin.line, key=_dotted(index, "write"), hint=exc.hint) from exc


def checked(read: Callable[[], SidecarConfig]) -> Callable[[], SidecarConfig]:
    """A function that reads the configuration, and holds it against what this process has imported by then."""

    def read_checked() -> SidecarConfig:
        config = read()
        check_served(config)
        return config

    return read_checked


def _dotted(*key: object) -> str:
    return ".".join(("plugin", *map(str, key)))


__all__ = ["check_served", "checked"]
