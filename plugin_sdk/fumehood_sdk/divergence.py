"""Compares a call that was run again from its record with the record, and names the first difference."""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from fumehood_sdk.wire.recorded_values import RecordedValue

KIND, PAYLOAD, ORDER, EXHAUSTED = "kind", "payload", "order", "exhausted"
"""Kinds of divergences: another kind of value was asked for; other arguments or another result; the same values in
another order, with another result; more or fewer values than were recorded."""
MAX_DIFF_LINES = 200
MAX_LINE_CHARS = 500
_MAX_COMPARED = 1_000
"""Lines of each side that are compared, from the first difference on: the time that takes grows with their square."""

Key = tuple[str, str, int]
"""Kind, name and number of a value."""


class Divergence(NamedTuple):
    """The first difference."""

    kind: str
    message: str
    """One sentence."""
    diff: str
    """Of what was recorded and what came now, as a unified diff."""


def first_divergence(
    recorded: Sequence[RecordedValue], asked: Sequence[Key], result_before: bytes, result_now: bytes
) -> Divergence | None:
    """Compare what a call asked for, in order, and its result, with the record. None: it ran as it ran before.

    Values are matched by kind, name and number, so that those of tasks that ran side by side may come in any order.
    """
    keys = [_key(each) for each in recorded]
    found = _first_missing(keys, asked) or _left_over(keys, asked)
    if found is not None:
        kind, message = found
        return Divergence(kind, message, _diff(_lines(keys), _lines(asked)))
    if result_before == result_now:
        return None
    if keys != list(asked):
        place = next(index for index, pair in enumerate(zip(keys, asked, strict=True)) if pair[0] != pair[1])
        message = f"it asked for {_said(asked[place])} where the record has {_said(keys[place])}"
        return Divergence(ORDER, message, _diff(_lines(keys), _lines(asked)))
    return Divergence(PAYLOAD, "its result is another one", _diff(_pretty(result_before), _pretty(result_now)))


def _first_missing(keys: Sequence[Key], asked: Sequence[Key]) -> tuple[str, str] | None:
    known = set(keys)
    for place, key in enumerate(asked):
        if key in known:
            continue
        same = sum(each[:2] == key[:2] for each in keys)
        if same:
            return EXHAUSTED, f"it asked for {_said(key)} and the record has {same}"
        came = set(asked[:place])
        rest = [each for each in keys if each not in came]
        if not rest:
            return EXHAUSTED, f"it asked for {_said(key)} and the record has no more values"
        other = next((each for each in rest if each[0] == key[0]), None)
        if other is not None:
            return PAYLOAD, f"it asked for {_said(key)} where the record has {_said(other)}"
        return KIND, f"it asked for {_said(key)} where the record has {_said(rest[0])}"
    return None


def _left_over(keys: Sequence[Key], asked: Sequence[Key]) -> tuple[str, str] | None:
    known = set(asked)
    left = [key for key in keys if key not in known]
    return (EXHAUSTED, f"it did not ask for {_said(left[0])}, which the record has") if left else None


def _key(value: RecordedValue) -> Key:
    return value.kind, value.name, value.number


def _said(key: Key) -> str:
    kind, name, number = key
    return f'{kind} "{name}" number {number}' if name else f"{kind} number {number}"


def _lines(keys: Sequence[Key]) -> list[str]:
    return [_said(key) for key in keys]


def _pretty(data: bytes) -> list[str]:
    try:
        value: Any = json.loads(data)
    except ValueError:
        return data.decode(errors="replace").splitlines()
    if isinstance(value, dict) and isinstance(value.get("details_json"), str) and value["details_json"]:
        with contextlib.suppress(ValueError):
            value["details_json"] = json.loads(value["details_json"])
    return json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True).splitlines()


def _diff(before: list[str], now: list[str]) -> str:
    same = next((at for at, (one, two) in enumerate(zip(before, now, strict=False)) if one != two), 0)
    start = max(same - 2, 0)
    end = start + _MAX_COMPARED
    lines = list(difflib.unified_diff(before[start:end], now[start:end], "recorded", "now", lineterm="", n=2))
    cut = len(lines) > MAX_DIFF_LINES or any(len(each) > end for each in (before, now))
    lines = [line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}…" for line in lines[:MAX_DIFF_LINES]]
    return "\n".join([*lines, "(there is more)"] if cut else lines)
