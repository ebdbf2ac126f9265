"""What the SDK writes as JSON is what pydantic would write, whoever of the two writes it."""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fumehood_sdk.json_text import dumps
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic_core import to_json

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


class Name(str):
    __slots__ = ()


@dataclass
class Inner:
    when: dt.date | None = None
    counted: ClassVar[int] = 3


@dataclass(slots=True)
class Outer:
    name: str
    inner: list[Inner] = field(default_factory=list)


@pydantic_dataclass
class Validated:
    size: int


class Model(BaseModel):
    path: Path


@given(PLAIN)
def test_plain_values_are_written_as_pydantic_writes_them(value: Any) -> None:
    assert json.loads(dumps(value)) == json.loads(to_json(value, inf_nan_mode="null"))


@pytest.mark.parametrize(
    "value",
    [
        'ü "quoted" \\ \x00\x1f\x7f\u2028 😀',
        Name("of a class of its own"),
        {2: "a", True: "b", 1.5: "c", "d": (1, 2)},
        Size.SMALL,
        [Colour.RED, {Size.SMALL: Colour.RED}],
        Inner(),
        Outer("x", [Inner(), Inner(dt.date(2026, 1, 2))]),
        {"deep": [Outer("x")]},
        Validated(3),
        Model(path=Path("/x")),
        [Model(path=Path("/x"))],
        dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        uuid.UUID(int=7),
        {b"bytes", "text"},
        2**80,
    ],
    ids=lambda value: type(value).__name__,  # a set is written in another order in each process
)
def test_whatever_pydantic_can_write_is_written_so(value: object) -> None:
    assert dumps(value) == to_json(value, inf_nan_mode="null")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_become_null(value: float) -> None:
    assert dumps([value, 1.5]) == b"[null,1.5]"


def _circle() -> list[Any]:
    out: list[Any] = []
    out.append(out)
    return out


def _deep() -> list[Any]:
    out: list[Any] = []
    for _ in range(100_000):
        out = [out]
    return out


def _unset() -> Outer:
    return Outer.__new__(Outer)  # a slot of it holds nothing


@pytest.mark.parametrize("make", [object, _circle, _deep, _unset, lambda: "\ud800", lambda: {"a": object()}])
def test_what_json_cannot_hold_is_refused(make: Any) -> None:
    assert dumps([]) == b"[]"
    with pytest.raises(ValueError):  # noqa: PT011 - the words are pydantic's
        dumps(make())
