"""Loads middleware by entry points of the group `fumehood.middleware`. The sidecar does not start without it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from fumehood_server.config.middleware_code import GROUP
from fumehood_server.errors import ConfigError
from fumehood_server.middleware import Middleware
from fumehood_server.model.hooks import MiddlewareConfig
from fumehood_server.model.nearest import nearest


@dataclass(frozen=True, slots=True)
class LoadedMiddleware:
    """One that was loaded."""

    config: MiddlewareConfig
    run: Middleware


def load_middleware(configs: Sequence[MiddlewareConfig], path: Path) -> tuple[LoadedMiddleware, ...]:
    """All of them, imported, in their order. `path` is the file that names them.

    Raises:
        ConfigError: one is not installed, can't be imported, or is none.
    """
    if not configs:
        return ()
    installed: dict[str, list[EntryPoint]] = {}
    for each in entry_points(group=GROUP):
        installed.setdefault(each.name, []).append(each)
    return tuple(_load(each, installed, path) for each in configs)


def _load(config: MiddlewareConfig, installed: dict[str, list[EntryPoint]], path: Path) -> LoadedMiddleware:
    key = f"middleware.{config.name}"
    found = installed.get(config.name, [])
    if not found:
        problem = f'no package that is installed has the middleware "{config.name}" (entry points "{GROUP}")'
        raise ConfigError(path, problem, key=key, hint=nearest(config.name, installed) if installed else _INSTALL)
    if len({each.value for each in found}) > 1:
        problem = f'several packages have the middleware "{config.name}": {", ".join(each.value for each in found)}'
        raise ConfigError(path, problem, key=key, hint="remove all but one")
    value = found[0].value
    try:
        loaded = found[0].load()
        if inspect.isclass(loaded):
            loaded = loaded()
    except (Exception, SystemExit) as exc:
        problem = f'middleware "{config.name}" ({value}) can\'t be imported: {type(exc).__name__}: {exc}'
        raise ConfigError(path, problem, key=key, hint="mend the package, or remove the [[middleware]]") from exc
    if not (inspect.iscoroutinefunction(loaded) or inspect.iscoroutinefunction(getattr(loaded, "__call__", None))):  # noqa: B004 - whether it is async
        problem = f'middleware "{config.name}" ({value}) is no async callable'
        raise ConfigError(path, problem, key=key, hint="write `async def name(call, next)`, docs/hooks.md")
    return LoadedMiddleware(config, loaded)


_INSTALL = "install the package in the sidecar's environment"
