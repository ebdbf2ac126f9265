from __future__ import annotations

from typing import Any

import pytest
import rfc8785
from fumehood_server.model.schema import SchemaError, canonical_json
from hypothesis import given
from hypothesis import strategies as st

WHOLE = st.integers(-(2**53) + 1, 2**53 - 1)
TEXT = st.text() | st.text(st.characters(max_codepoint=0x7F))
VALUES = st.recursive(
    st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda each: st.lists(each, max_size=4) | st.dictionaries(TEXT, each, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_every_value_has_the_canonical_form_of_rfc_8785(value: Any) -> None:
    assert canonical_json(value) == rfc8785.dumps(value).decode()


@pytest.mark.parametrize("value", [2**53, [{"a": -(2**53)}], float("nan"), "\ud800", {"\udfff": 1}])
def test_what_has_no_canonical_form_is_refused(value: Any) -> None:
    with pytest.raises(SchemaError, match="has no canonical JSON"):
        canonical_json(value)
