"""Every variable of every server is a secret of its own, whatever their names are."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from fumehood_server.cli.mcp_import.names import field_secret_name, plugin_name, secret_name
from fumehood_server.model.capability import valid_secret_name
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.mcp_import.own_server import import_servers, values

_PLUGINS = st.text("ab-_0", min_size=1, max_size=70).map(plugin_name)
_VARIABLES = st.from_regex(r"[ABab_][ABab_0]{0,70}", fullmatch=True)


@given(_PLUGINS, _VARIABLES, _PLUGINS, _VARIABLES)
@example("github", "PERSONAL_ACCESS_TOKEN", "github-personal", "ACCESS_TOKEN")
@example("two", "API_KEY", "two", "Api_Key")
@example("s" * 64, "A_TOKEN", "s" * 64, "B_TOKEN")
def test_two_variables_never_have_one_name(plugin: str, variable: str, other: str, others: str) -> None:
    assume((plugin, variable) != (other, others))
    name = secret_name(plugin, variable)
    assert name != secret_name(other, others)
    assert valid_secret_name(name)


@given(_PLUGINS, st.text(string.ascii_letters + string.digits + "!#$%&'*+-.^_`|~", min_size=1, max_size=70))
def test_a_header_field_has_one_name_in_all_of_its_cases(plugin: str, field: str) -> None:
    name = field_secret_name(plugin, field)
    assert name == field_secret_name(plugin, field.swapcase())
    assert valid_secret_name(name)
    assert name != field_secret_name(plugin, f"{field}-")


@pytest.mark.parametrize(
    ("plugin", "variable", "name"),
    [
        ("notes", "API_KEY", "notes-api-key"),
        ("who_am_i", "API_KEY", "who_am_i-api-key"),
        ("the-server", "API_KEY", "the-server-api-key.f2094e73e888"),
        ("notes", "Api_Key", "notes-api-key.1d54d1f68aad"),
    ],
)
def test_names_are_plain_where_they_are_read_one_way(plugin: str, variable: str, name: str) -> None:
    assert secret_name(plugin, variable) == name


@pytest.mark.parametrize(
    "wanted",
    [
        {
            "github": {"PERSONAL_ACCESS_TOKEN": "ghp_of-the-first-0001"},
            "github-personal": {"ACCESS_TOKEN": "ghp_of-the-second-0002"},
        },
        {"two": {"API_KEY": "value-of-upper-case", "Api_Key": "value-of-mixed-case"}},
        {"s" * 64: {"A_TOKEN": "value-of-a-0000001", "B_TOKEN": "value-of-b-0000002"}},
    ],
    ids=["servers", "cases", "long"],
)
def test_what_looks_alike_gets_its_own_value(tmp_path: Path, wanted: dict[str, dict[str, str]]) -> None:
    found = import_servers(tmp_path, wanted)
    assert {each["status"] for each in found} == {"imported"}, found
    assert {name: values(tmp_path, name) for name in wanted} == wanted
