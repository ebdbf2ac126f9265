from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from fumehood_server.config.toml_source import MAX_KEY_PARTS, TOML_LIMIT_BYTES, Key, read_toml
from fumehood_server.errors import ConfigError
from fumehood_server.model.nearest import nearest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TEXT = '''\
title = "a [b] # c"  # = x
[server]
listen = [
  "one",   # ]
  "two",
]
"quoted.key".inner = 1
long = """
[not.a.table]
x = 1 \\""" ""\"""
lit = \'\'\'
y = 2\'\'\'
after = 3
inline = {a = 1, b = {c = "}"}, d = [{e = 1}, {f = 2}]}

[[plugin]]
path = "a"
[plugin.tools.x]
permission = "allow"

[[plugin]]
path = "b"
  [ plugin . tools . y ]
  permission = "deny"
[[plugin.more]]
z = 1979-05-27 07:32:00
'''


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "file.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def line_of(text: str, part: str, nth: int = 0) -> int:
    lines = [number for number, line in enumerate(text.splitlines(), start=1) if part in line]
    return lines[nth]


@pytest.mark.parametrize(
    ("key", "part", "nth"),
    [
        (("title",), "title", 0),
        (("server",), "[server]", 0),
        (("server", "listen"), "listen", 0),
        (("server", "listen", 0), '"one"', 0),
        (("server", "listen", 1), '"two"', 0),
        (("server", "quoted.key", "inner"), "quoted.key", 0),
        (("server", "long"), "long", 0),
        (("server", "lit"), "lit", 0),
        (("server", "after"), "after", 0),
        (("server", "inline", "b", "c"), "inline", 0),
        (("server", "inline", "d", 1, "f"), "inline", 0),
        (("plugin", 0), "[[plugin]]", 0),
        (("plugin", 0, "path"), 'path = "a"', 0),
        (("plugin", 0, "tools", "x", "permission"), '"allow"', 0),
        (("plugin", 1), "[[plugin]]", 1),
        (("plugin", 1, "tools", "y"), "tools . y", 0),
        (("plugin", 1, "tools", "y", "permission"), '"deny"', 0),
        (("plugin", 1, "more", 0, "z"), "z = 1979", 0),
        (("plugin", 1, "no", "such", "key"), "[[plugin]]", 1),
        (("nothing",), "title", 0),
    ],
)
def test_a_key_is_found_on_the_line_where_it_stands(tmp_path: Path, key: Key, part: str, nth: int) -> None:
    assert read_toml(write(tmp_path, TEXT)).line(key) == line_of(TEXT, part, nth)


def test_carriage_returns_do_not_shift_lines(tmp_path: Path) -> None:
    source = read_toml(write(tmp_path, "a = 1\r\n\r\nb = 2\r\n"))
    assert source.line(("b",)) == 3


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a = 1\nb = = 2\n", 2, "Invalid value"),
        ("a = 1\n[x\n", 2, "Expected ']'"),
        ("a = 1\na = 2\n", 2, "Cannot overwrite a value"),
        ("a = [1,\n\n", 3, "Invalid value at the end of the file"),
        (b"a = 1\nb = '\xff'\n", 2, "is not UTF-8"),
    ],
)
def test_bad_syntax_is_refused_with_its_line(tmp_path: Path, text: str | bytes, line: int, problem: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_toml(path)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert problem in str(caught.value)


@pytest.mark.parametrize("text", ["a = " + "9" * 5000, "a = " + "[" * 5000 + "]" * 5000])
def test_what_the_parser_chokes_on_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        read_toml(write(tmp_path, text))


def test_places_that_would_fill_the_memory_are_refused(tmp_path: Path) -> None:
    """A few megabytes of dots or commas, each of which would be kept with its whole path."""
    shallow = ".".join("a" * (MAX_KEY_PARTS - 1))
    for text in (f"{shallow}.b = 1", f"[{shallow}.b]", f"text = '{'a b.' * 50_000}'", f"x = [{'1,' * 20_000}]"):
        read_toml(write(tmp_path, text))
    for text in (
        f"{'a.' * 100_000}b = 1",
        f"[{'a.' * 100_000}b]",
        "'a' . " * MAX_KEY_PARTS + "b = 1",
        f"x = {'[' * 150}{']' * 150}",
        f"x = [{'1,' * 150_000}]",
        "\n".join(f"[k{number}{'.a' * 20}]" for number in range(8_000)),
    ):
        with pytest.raises(ConfigError, match=r"more than 32 parts|holds too much"):
            read_toml(write(tmp_path, text))


def test_a_file_at_the_limit_is_read_and_one_above_is_refused(tmp_path: Path) -> None:
    text = b"a = 1\n#"
    assert read_toml(write(tmp_path, text.ljust(TOML_LIMIT_BYTES, b"#"))).data == {"a": 1}
    with pytest.raises(ConfigError, match="is larger than"):
        read_toml(write(tmp_path, text.ljust(TOML_LIMIT_BYTES + 1, b"#")))


def test_what_is_not_a_readable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_toml(tmp_path / "absent")
    with pytest.raises(ConfigError, match="not a regular file"):
        read_toml(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ConfigError, match="not a regular file"):
        read_toml(tmp_path / "fifo")


def test_suggestions() -> None:
    assert nearest("wirte", ["none", "read", "write"]) == 'did you mean "write"?'
    assert nearest("WRITE", ["none", "read", "write"]) == 'did you mean "write"?'
    assert nearest("xyz", ["none", "read"]) == 'one of "none", "read"'
    assert nearest("zzz", [f"word{number}" for number in range(50)]) == ""


_NAMES = st.text("abXY_-.\"' #=[]é\n", min_size=1, max_size=5)
_SCALARS = st.one_of(
    st.integers(-1000, 1000), st.booleans(), st.text("ab\"'\\\n#=[]{},é", max_size=12), st.floats(allow_nan=False)
)
_INLINE = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[\n" + ",\n".join(map(_value, value)) + ("," if value else "") + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k, ensure_ascii=False)} = {_value(v)}" for k, v in value.items()) + "}"
    return repr(value)


def _emit(table: dict[str, Any]) -> tuple[str, dict[Key, int]]:
    """TOML text of a table of tables, and the lines where its first two levels were written."""
    lines: list[str] = []
    where: dict[Key, int] = {}
    for name, inner in table.items():
        path: Key = (name,)
        quoted = json.dumps(name, ensure_ascii=False)
        tables = inner if isinstance(inner, list) else [inner]
        for index, each in enumerate(tables):
            lines.append(f"[[{quoted}]]" if isinstance(inner, list) else f"[{quoted}]  # comment = ]")
            at = (*path, index) if isinstance(inner, list) else path
            where[at] = len(lines)
            for key, value in each.items():
                where[(*at, key)] = len(lines) + 1
                lines += f"{json.dumps(key, ensure_ascii=False)} = {_value(value)}".split("\n")
    return "\n".join(lines), where


_TABLES = st.dictionaries(_NAMES, _INLINE, max_size=4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.dictionaries(_NAMES, _TABLES | st.lists(_TABLES, min_size=1, max_size=3), max_size=4))
def test_every_key_of_any_file_is_found_on_its_line(tmp_path: Path, table: dict[str, Any]) -> None:
    text, where = _emit(table)
    assert tomllib.loads(text) == table
    source = read_toml(write(tmp_path, text))
    assert {key: source.line(key) for key in where} == where


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.text("ab=[]{}\"'\\\n#., 1\t\r", max_size=60))
def test_any_text_is_read_or_refused(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    try:
        source = read_toml(path)
    except ConfigError:
        return
    assert all(1 <= line <= text.count("\n") + 1 for line in source.lines.values())
