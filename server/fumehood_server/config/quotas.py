"""`[[policy.quota]]`: what calls may use in all, each checked for what could not be honoured when a call comes."""

from __future__ import annotations

import decimal
import re
from collections.abc import Sequence
from decimal import Decimal

from fumehood_server.config.config_file import JournalStore
from fumehood_server.config.policy_tables import QuotaMissing, QuotaTable
from fumehood_server.config.toml_source import Key, TomlSource
from fumehood_server.model.quotas import Counted, Per, Quota

_QUOTA = "[[policy.quota]]"
_WINDOW = re.compile(r"([1-9][0-9]{0,8})(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_MAX_WINDOW_S = 366 * 86_400
_MAX_AMOUNT = Decimal(10) ** 30
_MAX_PLACES = 30
"""Digits after the point of `max`."""


def read_quotas(tables: Sequence[QuotaTable], source: TomlSource, *, journal: str) -> tuple[Quota, ...]:
    """The quotas.

    Raises:
        ConfigError: one can't be honoured as it stands.
    """
    names: set[str] = set()
    found = []
    for place, table in enumerate(tables):
        key: Key = ("policy", "quota", place)
        if table.name in names:
            raise source.problem((*key, "name"), f'two quotas have the name "{table.name}"', "a refusal names one")
        names.add(table.name)
        if journal == JournalStore.OFF:
            problem = f'{_QUOTA} "{table.name}" is counted in the journal, and `store` in [journal] is "off"'
            raise source.problem((*key, "name"), problem, "let it be recorded, or leave the quota out")
        found.append(_quota(table, key, source))
    return tuple(found)


def _quota(table: QuotaTable, key: Key, source: TomlSource) -> Quota:
    given = [each for each in Counted if getattr(table, each.value) is not None]
    if len(given) != 1:
        said = "counts nothing" if not given else f"counts {' and '.join(f'`{each.value}`' for each in given)}"
        hint = "write one of in_flight, calls, bytes, sum, inferences, tokens and cost, and a quota for each other"
        raise source.problem((*key, "name"), f'{_QUOTA} "{table.name}" {said}', hint)
    counts = given[0]
    _check_selection(table, counts, key, source)
    return Quota(
        name=table.name,
        counts=counts,
        limit=_limit(table, counts, key, source),
        window_us=_window_us(table, counts, key, source),
        pointer=table.sum or "",
        missing_is_zero=table.missing is QuotaMissing.ZERO,
        per=tuple(each for each in Per if each in table.per),
        tools=tuple(table.tools),
        plugins=tuple(table.plugins),
        side_effects=tuple(each.value for each in table.side_effects),
        callers=tuple(table.callers),
        engines=tuple(table.engines),
    )


def _check_selection(table: QuotaTable, counts: Counted, key: Key, source: TomlSource) -> None:
    """Calls are told apart by their tools, inferences by their engines."""
    counted, foreign = "calls", ["engines"] if table.engines else []
    if counts.of_inferences:
        counted = "inferences"
        foreign = [each for each in ("tools", "plugins", "side_effects") if getattr(table, each)]
        foreign += ["per"] if Per.TOOL in table.per else []
    if foreign:
        problem = f'{_QUOTA} "{table.name}" counts {counted}, which `{foreign[0]}` says nothing of'
        raise source.problem((*key, foreign[0]), problem, "leave it out")


def _limit(table: QuotaTable, counts: Counted, key: Key, source: TomlSource) -> Decimal:
    if counts is not Counted.SUM:
        for name in ("max", "missing"):
            if getattr(table, name) is not None:
                problem = f'`{name}` in {_QUOTA} "{table.name}" speaks of a `sum`, and there is none'
                raise source.problem((*key, name), problem, f"leave it out: the limit is `{counts.value}`")
        if counts is Counted.COST:
            return _amount(table.cost, "cost", table.name, key, source)
        return Decimal(getattr(table, counts.value))
    if not (table.sum or "").startswith("/"):
        raise source.problem((*key, "sum"), f'"{table.sum}" is no JSON pointer (RFC 6901)', f'write "/{table.sum}"')
    if table.max is None:
        problem = f'`max` is missing in {_QUOTA} "{table.name}"'
        raise source.problem((*key, "sum"), problem, "the most that the sum may be")
    return _amount(table.max, "max", table.name, key, source)


def _amount(value: float | str | None, field: str, quota: str, key: Key, source: TomlSource) -> Decimal:
    try:
        limit = Decimal(str(value))
        places = limit.as_tuple().exponent
        is_fit = limit.is_finite() and 0 < limit <= _MAX_AMOUNT and isinstance(places, int) and places >= -_MAX_PLACES
    except decimal.InvalidOperation:
        is_fit = False
    if not is_fit:
        problem = f'`{field}` in {_QUOTA} "{quota}" must be more than 0, and at most 1e30 with {_MAX_PLACES} places'
        raise source.problem((*key, field), problem, 'write a number, or one as a string: "499.99"')
    return limit


def _window_us(table: QuotaTable, counts: Counted, key: Key, source: TomlSource) -> int:
    if counts is Counted.IN_FLIGHT:
        if table.window is not None:
            problem = f'{_QUOTA} "{table.name}" counts calls in flight, which have no `window`'
            raise source.problem((*key, "window"), problem, "leave it out")
        return 0
    if table.window is None:
        problem = f'`window` is missing in {_QUOTA} "{table.name}"'
        raise source.problem((*key, "name"), problem, 'write window = "1h", or "1d"')
    found = _WINDOW.fullmatch(table.window)
    seconds = int(found[1]) * _SECONDS[found[2]] if found else 0
    if not 0 < seconds <= _MAX_WINDOW_S:
        problem = f'"{table.window}" is no window of a quota'
        raise source.problem((*key, "window"), problem, 'a whole number with s, m, h or d, up to "366d"')
    return seconds * 1_000_000
