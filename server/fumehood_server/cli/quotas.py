"""Quotas of a configuration with what the journal says of each: for `fumehood policy`."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import orjson

from fumehood_server.model.call import CallContext, CallRequest
from fumehood_server.model.caller import ANONYMOUS
from fumehood_server.model.quota_counts import Window
from fumehood_server.model.quotas import Counted, Quota, UncountableError, shown
from fumehood_server.policy import QuotaSet

if TYPE_CHECKING:
    from fumehood_server.journal.store import Reader
    from fumehood_server.model.plugin import RegisteredTool

_Used = tuple[Decimal, tuple[tuple[str, str], ...], int]
"""How much, counted apart by what, and when the first of it is free again."""


def quotas_of_call(quotas: Sequence[Quota], tool: RegisteredTool, caller: str, text: str) -> list[dict[str, Any]]:
    """The quotas that would count a call, and what it would take of each."""
    some = QuotaSet(quotas)
    request = CallRequest(
        call_id="",
        tool=tool.name,
        arguments_json=text,
        context=CallContext(),
        timeout_s=None,
        caller_deadline=None,
        identity=replace(ANONYMOUS, name=caller),
    )
    found = []
    for each in some.counting(tool, caller):
        takes, problem = None, ""
        try:
            takes = shown(some.charges([each], request, text)[0].amount)
        except UncountableError as exc:
            problem = exc.problem
        found.append({**_head(each), "takes": takes, "problem": problem})
    return found


def used_quotas(quotas: Sequence[Quota], reader: Reader, *, top: int) -> list[dict[str, Any]]:
    """What each has used, the fullest `top` keys of each."""
    fullest: dict[tuple[str, str], list[_Used]] = {(each.name, each.counts.value): [] for each in quotas}
    totals = dict.fromkeys(fullest, 0)
    known = {(each.name, each.counts.value): each for each in quotas}
    for name, used in _all(known, reader):
        totals[name] += 1
        (heapq.heappush if len(fullest[name]) < top else heapq.heappushpop)(fullest[name], used)
    found = []
    for name, quota in known.items():
        keys = [_key(quota, each) for each in sorted(fullest[name], reverse=True)]
        found.append({**_head(quota), "keys": keys, "more": totals[name] - len(keys)})
    return found


def _all(known: dict[tuple[str, str], Quota], reader: Reader) -> Iterator[tuple[tuple[str, str], _Used]]:
    now_us = max(time.time_ns() // 1_000, reader.least_time_us())
    for record in reader.quota_windows():
        window = Window.from_json(record)
        name = (window.quota, window.counts)
        if name not in known or {each for each, _ in window.key} != _parts(known[name]):
            continue
        window_us = known[name].window_us
        at_us = window.now_us(now_us)
        used = window.used(at_us, window_us)
        if used:
            yield name, (used, window.key, window.first_free_us(at_us, window_us))
    for label, count in reader.quota_holds():
        quota, key = orjson.loads(label)
        name = (quota, Counted.IN_FLIGHT.value)
        if name in known and {each for each, _ in key} == _parts(known[name]):
            yield name, (Decimal(count), tuple((each, value) for each, value in key), 0)


def _parts(quota: Quota) -> set[str]:
    return {each.value for each in quota.key_parts}


def _head(quota: Quota) -> dict[str, Any]:
    return {
        "quota": quota.name,
        "counts": quota.counts.value,
        "limit": shown(quota.limit),
        "window_s": quota.window_us // 1_000_000 or None,
    }


def _key(quota: Quota, found: _Used) -> dict[str, Any]:
    used, key, free_us = found
    return {
        "key": dict(key),
        "used": shown(used),
        "left": shown(max(quota.limit - used, Decimal(0))),
        "free_at": datetime.fromtimestamp(free_us / 1e6, UTC).isoformat(timespec="seconds") if free_us else None,
    }


def limit_text(quota: dict[str, Any]) -> str:
    """A limit in words."""
    words = {"in_flight": "at a time", "sum": "in all", "cost": "of cost"}
    window = f" in {quota['window_s']:,} s" if quota["window_s"] else ""
    return f"{quota['limit']} {words.get(quota['counts'], quota['counts'])}{window}"


def key_text(key: dict[str, str]) -> str:
    """What is counted apart, in words."""
    return ", ".join(f"{name} {value or '(none)'}" for name, value in key.items()) or "all together"


__all__ = ["key_text", "limit_text", "quotas_of_call", "used_quotas"]
