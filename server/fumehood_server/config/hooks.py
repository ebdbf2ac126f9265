"""`[[hook]]`, `[[middleware]]`: who is asked before and after calls, in their order."""

from __future__ import annotations

from collections.abc import Sequence

from fumehood_server.config.callers import CallerConfig
from fumehood_server.config.hook_tables import HookTable, MiddlewareTable
from fumehood_server.config.toml_source import TomlSource
from fumehood_server.model.hooks import HookConfig, Matchers, MiddlewareConfig, Stage


def read_hooks(
    tables: Sequence[HookTable], callers: Sequence[CallerConfig], source: TomlSource
) -> tuple[HookConfig, ...]:
    """The hooks.

    Raises:
        ConfigError: two have one name, or one could never be served by a caller that it names.
    """
    _check_names("hook", tables, source)
    known = {each.name for each in callers}
    for place, table in enumerate(tables):
        for index, name in enumerate(table.served_by):
            if name not in known:
                problem = f'`served_by` of hook "{table.name}" names "{name}", and there is no such [[caller]]'
                raise source.problem(("hook", place, "served_by", index), problem, "add the caller, or remove the name")
    return tuple(
        HookConfig(
            name=each.name,
            stages=tuple(stage for stage in Stage if stage in each.stages),
            timeout_s=each.timeout_s,
            when_gone=each.when_gone,
            matchers=_matchers(each),
            served_by=tuple(each.served_by),
        )
        for each in tables
    )


def read_middleware(tables: Sequence[MiddlewareTable], source: TomlSource) -> tuple[MiddlewareConfig, ...]:
    """The middleware, which is not imported here.

    Raises:
        ConfigError: two have one name.
    """
    _check_names("middleware", tables, source)
    return tuple(
        MiddlewareConfig(name=each.name, timeout_s=each.timeout_s, matchers=_matchers(each)) for each in tables
    )


def _check_names(table: str, tables: Sequence[HookTable | MiddlewareTable], source: TomlSource) -> None:
    names: set[str] = set()
    for place, each in enumerate(tables):
        if each.name in names:
            problem = f'two [[{table}]] have the name "{each.name}"'
            raise source.problem((table, place, "name"), problem, "rename one: an answer names it")
        names.add(each.name)


def _matchers(table: HookTable | MiddlewareTable) -> Matchers:
    return Matchers(
        tools=tuple(table.tools),
        plugins=tuple(table.plugins),
        side_effects=tuple(each.value for each in table.side_effects),
        callers=tuple(table.callers),
    )
