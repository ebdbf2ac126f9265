"""The first difference between a record and a run from it has one of four kinds."""

from __future__ import annotations

import pytest
from fumehood_sdk.divergence import Key, first_divergence
from fumehood_sdk.wire.recorded_values import RecordedValue

NOW, AGAIN = ("now", "", 1), ("now", "", 2)
ONE, OTHER = ("http", "GET https://one.example/", 1), ("http", "GET https://other.example/", 1)
EFFECT = ("side_effect", "size", 1)


def recorded(*keys: Key) -> list[RecordedValue]:
    return [RecordedValue(*key, "1") for key in keys]


@pytest.mark.parametrize(
    ("before", "asked", "kind", "said"),
    [
        ([NOW], [EFFECT], "kind", 'side_effect "size" number 1 where the record has now number 1'),
        ([NOW, ONE], [NOW, OTHER], "payload", "https://other.example/"),
        ([NOW], [NOW, AGAIN], "exhausted", "asked for now number 2 and the record has 1"),
        ([NOW], [NOW, EFFECT], "exhausted", "no more values"),
        ([NOW, AGAIN], [NOW], "exhausted", "did not ask for now number 2"),
        ([NOW, EFFECT], [EFFECT, NOW], "order", "where the record has now number 1"),
        ([NOW], [NOW], "payload", "its result is another one"),
    ],
)
def test_a_divergence_is_named(before: list[Key], asked: list[Key], kind: str, said: str) -> None:
    found = first_divergence(recorded(*before), asked, b'{"a":1}', b'{"a":2}')
    assert found is not None
    assert found.kind == kind
    assert said in found.message
    assert found.diff.startswith("--- recorded")


def test_the_same_values_and_the_same_bytes_are_no_divergence_in_any_order() -> None:
    assert first_divergence(recorded(NOW, EFFECT), [NOW, EFFECT], b"1", b"1") is None
    assert first_divergence(recorded(NOW, EFFECT), [EFFECT, NOW], b"1", b"1") is None
    assert first_divergence([], [], b"", b"") is None
