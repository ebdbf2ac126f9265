"""A key that stands twice is found in one pass. Nothing here measures time: comparing each key with each takes minutes,
and ends by pytest's timeout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fumehood_server.errors import ConfigError
from fumehood_server.model.call import CallError
from fumehood_server.model.json_keys import first_duplicate
from fumehood_server.model.schema import SCHEMA_LIMIT_BYTES, SchemaError, check_schema
from fumehood_server.model.taxonomy import Code
from fumehood_server.plugins.lock import read_lock
from fumehood_server.validation.schemas import Validators

from tests.calls.documents import check_result, prepare_arguments
from tests.calls.fake import SPEC, answered, tool

MEBIBYTE = 1 << 20


def crowded(size_bytes: int, *, last: str) -> str:
    """An object of about so many bytes whose last key is `last`, and no other one twice."""
    pairs = [f'"k{number:06}":0' for number in range(size_bytes // 12)]
    return "{" + ",".join([*pairs, f'"{last}":0']) + "}"


def repeated(size_bytes: int) -> tuple[str, str]:
    """The object whose last key is the one before it again, and that key."""
    key = f"k{size_bytes // 12 - 1:06}"
    return crowded(size_bytes, last=key), key


def test_the_first_key_that_repeats_an_earlier_one_is_named() -> None:
    assert first_duplicate([("a", 1), ("b", 2), ("b", 3), ("a", 4)]) == "b"
    assert first_duplicate([("a", 1), ("b", 2)]) is None


def test_arguments_with_the_last_of_many_keys_twice_are_refused_by_its_name() -> None:
    text, key = repeated(MEBIBYTE)
    refused = prepare_arguments(tool(schema='{"type":"object"}'), text, Validators())
    assert isinstance(refused, CallError)
    assert f'"{key}" twice' in refused.message
    alone = crowded(MEBIBYTE, last="other")
    assert prepare_arguments(tool(schema='{"type":"object"}'), alone, Validators()) == alone


def test_details_with_the_last_of_many_keys_twice_are_refused_by_its_name() -> None:
    text, key = repeated(MEBIBYTE)
    checked = check_result(tool(), replace(SPEC, output_bytes=2 * MEBIBYTE), answered(details_json=text), Validators())
    assert checked.error is not None
    assert checked.error.code is Code.CONSTRAINT_JSON_INVALID
    assert f'"{key}" twice' in checked.error.message


def test_schemas_with_the_last_of_many_keys_twice_are_refused_by_its_name() -> None:
    text, key = repeated(SCHEMA_LIMIT_BYTES - 64)
    for _ in range(32):  # each took 10 s
        with pytest.raises(SchemaError, match=f'"{key}" twice'):
            check_schema(text, arguments=False)


def test_a_lock_with_the_last_of_many_keys_twice_is_refused_by_its_name(tmp_path: Path) -> None:
    text, key = repeated(MEBIBYTE)
    (tmp_path / "fumehood.lock").write_text(text)
    with pytest.raises(ConfigError, match=f"`{key}` twice"):
        read_lock(tmp_path / "fumehood.lock")
