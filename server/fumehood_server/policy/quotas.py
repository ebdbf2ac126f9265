"""The quotas in force: for each tool those that count it, and what a call's arguments take of them.

Amounts are decimal and exact, read from the text that the tool gets. What can't be counted is refused: a number that
is negative, that is none, or that has more digits than are kept.
"""

from __future__ import annotations

import decimal
import hashlib
import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from fumehood_server.model.call import CallRequest
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.quotas import Charge, Counted, Per, Quota, UncountableError
from fumehood_server.model.selection import selects
from fumehood_server.validation.pointer_values import MAX_VALUES, pointer_parts

MAX_DIGITS = 40
"""Of an amount, before and after its point."""
_MAX_CHARS = 100
_MAX_TOOLS = 10_000
"""Whose quotas are kept at hand."""
_ZERO, _ONE = Decimal(0), Decimal(1)
_MISSING, _TOO_LONG, _NOT_FINITE = object(), object(), object()


class QuotaSet:
    """See `fumehood_server.model.quotas.Quotas`. `take_up` puts others in force."""

    def __init__(self, quotas: Sequence[Quota] = ()) -> None:
        """No two have one name."""
        self._quotas = tuple(quotas)
        self._tools: dict[tuple[object, ...], tuple[Quota, ...]] = {}

    def take_up(self, quotas: Sequence[Quota]) -> None:
        """Have other quotas in force, from the next call on."""
        self._quotas, self._tools = tuple(quotas), {}

    def counting(self, tool: RegisteredTool, caller: str) -> Sequence[Quota]:
        """See `Quotas`."""
        if not self._quotas:
            return ()
        key = (tool.name, tool.plugin, tool.definition.side_effects)
        found = self._tools.get(key)
        if found is None:
            if len(self._tools) > _MAX_TOOLS:
                self._tools.clear()
            found = self._tools[key] = tuple(
                each for each in self._quotas if not each.counts.of_inferences and selects(each, tool)
            )
        return [each for each in found if not each.callers or caller in each.callers] if found else ()

    def charges(self, found: Sequence[Quota], request: CallRequest, arguments_json: str) -> Sequence[Charge]:
        """See `Quotas`."""
        arguments: Any = _MISSING
        if any(each.counts is Counted.SUM for each in found):
            try:
                arguments = json.loads(
                    arguments_json or "{}", parse_int=_number, parse_float=_number, parse_constant=_not_finite
                )
            except (ValueError, RecursionError):
                arguments = _MISSING
        return [_charge(each, request, arguments_json, arguments) for each in found]

    def of_inference(self, engine: str, caller: str, session_id: str) -> Sequence[Charge]:
        """See `Quotas`."""
        found = []
        for each in self._quotas:
            if not each.counts.of_inferences:
                continue
            if (each.engines and engine not in each.engines) or (each.callers and caller not in each.callers):
                continue
            values = {Per.CALLER: caller, Per.SESSION: session_id}
            key = tuple((part.value, values[part]) for part in each.key_parts)
            found.append(_charge_of(each, key, _ONE if each.counts is Counted.INFERENCES else _ZERO))
        return found


def _charge(quota: Quota, request: CallRequest, text: str, arguments: Any) -> Charge:  # noqa: ANN401 - any JSON value
    key = key_of(quota, request)
    amount = _ONE
    if quota.counts is Counted.BYTES:
        amount = Decimal(len(text.encode(errors="surrogatepass")))
    elif quota.counts is Counted.SUM:
        amount = _sum(quota, arguments)
    return _charge_of(quota, key, amount)


def _charge_of(quota: Quota, key: tuple[tuple[str, str], ...], amount: Decimal) -> Charge:
    return Charge(
        quota=quota.name,
        counts=quota.counts,
        key=key,
        counter=_counter(quota, key),
        amount=amount,
        limit=quota.limit,
        window_us=quota.window_us,
    )


def key_of(quota: Quota, request: CallRequest) -> tuple[tuple[str, str], ...]:
    """What a quota counts a call apart by."""
    values = {
        Per.TOOL: request.tool,
        Per.CALLER: request.identity.name,
        Per.SESSION: request.context.session_id,
    }
    return tuple((each.value, values[each]) for each in quota.key_parts)


def _counter(quota: Quota, key: tuple[tuple[str, str], ...]) -> str:
    named = json.dumps([quota.name, quota.counts.value, quota.pointer, key])
    return hashlib.sha256(named.encode()).hexdigest()


def _sum(quota: Quota, arguments: Any) -> Decimal:  # noqa: ANN401 - any JSON value
    total, count = Decimal(0), 0
    with decimal.localcontext(decimal.Context(prec=4 * MAX_DIGITS, traps=[decimal.Inexact])):
        for each in _values(arguments, pointer_parts(quota.pointer)):
            count += 1
            if count > MAX_VALUES:
                raise UncountableError(quota, f"it has more than {MAX_VALUES:,} values")
            total += _amount(quota, each)
    return total


def _amount(quota: Quota, value: Any) -> Decimal:  # noqa: ANN401 - likewise
    if value is _MISSING or value is None:
        if quota.missing_is_zero:
            return Decimal(0)
        raise UncountableError(quota, "it is missing")
    if value is _NOT_FINITE or value is _TOO_LONG:
        raise UncountableError(quota, f"it is no number of at most {MAX_DIGITS} digits before and after its point")
    if not isinstance(value, Decimal):
        raise UncountableError(quota, "it is no number")
    if value < 0:
        raise UncountableError(quota, "it is negative")
    return value


def _values(value: Any, parts: Sequence[str]) -> Iterator[Any]:  # noqa: ANN401 - likewise
    """What a pointer finds: `_MISSING` for each place at which it finds nothing."""
    for place, part in enumerate(parts):
        if part == "*" and isinstance(value, dict | list):
            for each in value.values() if isinstance(value, dict) else value:
                yield from _values(each, parts[place + 1 :])
            return
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isascii() and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            yield _MISSING
            return
    yield value


def _number(text: str) -> object:
    """A number of a JSON text. Of one that is too long nothing is read."""
    return read_amount(text) if len(text) <= _MAX_CHARS else _TOO_LONG


def read_amount(text: str) -> object:
    """A decimal number of a bounded length, exactly. Else what is no `Decimal`."""
    try:
        found = Decimal(text)
    except decimal.InvalidOperation:
        return _TOO_LONG
    exponent = found.as_tuple().exponent
    if not isinstance(exponent, int):
        return _NOT_FINITE
    if not found:
        return Decimal(0)
    return found if found.adjusted() < MAX_DIGITS and exponent >= -MAX_DIGITS else _TOO_LONG


def _not_finite(_text: str) -> object:
    return _NOT_FINITE


__all__ = ["MAX_DIGITS", "QuotaSet", "key_of", "read_amount"]
