"""What JSON holds, counted without parsing it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fumehood_server.model import json_counts
from fumehood_server.model.json_counts import (
    MAX_NODES,
    MAX_VALUES,
    TOO_MANY_NODES,
    TOO_MANY_VALUES,
    counting,
    too_much_of,
)
from hypothesis import given
from hypothesis import strategies as st

TEXTS = st.text(st.sampled_from('"\\[]{}:,aä\n'), max_size=12)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXTS, inner, max_size=6),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([1.5] * MAX_VALUES, ""),
        ([1.5] * (MAX_VALUES + 1), TOO_MANY_VALUES),
        ([[]] * (MAX_NODES - 1), ""),
        ([[]] * MAX_NODES, TOO_MANY_NODES),
        (dict.fromkeys(map(str, range(MAX_NODES - 1))), ""),
        (dict.fromkeys(map(str, range(MAX_NODES))), TOO_MANY_NODES),
        (["[],{:\\" * MAX_VALUES], ""),
    ],
)
def test_json_is_within_its_bounds_up_to_the_last_value(value: Any, problem: str) -> None:
    assert too_much_of(json.dumps(value).encode()) == problem


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
def test_an_encoding_whose_bytes_look_like_quotes_hides_nothing(encoding: str) -> None:
    text = json.dumps({"∢": [[]] * MAX_NODES}, ensure_ascii=False)
    assert too_much_of(text.encode(encoding)) == TOO_MANY_NODES


def test_a_quote_in_one_part_opens_no_text_in_the_next() -> None:
    assert too_much_of(b': "', b"[]," * MAX_NODES) == TOO_MANY_NODES


def test_long_json_is_told_of_in_portions() -> None:
    told = list(counting((json.dumps(["[" * 16_384] * 100).encode(),)))
    assert (len(told) >= 100, set(told)) == (True, {""})


@given(value=VALUES, cut=st.integers(1, 40), is_ascii=st.booleans())
def test_what_stands_in_texts_is_not_counted_wherever_portions_are_cut(value: Any, cut: int, is_ascii: bool) -> None:
    body = json.dumps(value, ensure_ascii=is_ascii).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_counts, "_PORTION_BYTES", cut)
        outside = b"".join(json_counts._outside_texts(body))
    assert sum(map(outside.count, (b"[", b"{", b":"))) == _nodes(value)


def _nodes(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(_nodes, value.values()))
    return 1 + sum(map(_nodes, value)) if isinstance(value, list) else 0
