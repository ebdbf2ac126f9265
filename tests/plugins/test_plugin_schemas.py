"""The patterns of one plugin have a bound together, whatever becomes of its definitions; one is checked at a time."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from fumehood_server.model.pattern_cost import building_states
from fumehood_server.plugins import definitions
from fumehood_server.plugins.definitions import MAX_PLUGIN_STATES, FieldProblem, PluginSchemas, RawDefinition

from .support import SCHEMA


def costly(number: int, *, name: str = "no name") -> RawDefinition:
    """With a pattern of some 10,000 states, of which no two are the same."""
    schema = {"type": "object", "properties": {"p": {"pattern": f"^[a-z]{{{9_000 + number}}}$"}}}
    return RawDefinition(name=name, description="d", input_schema_json=json.dumps(schema), side_effects="none")


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(definitions.time, "sleep", found.append)
    return found


def test_definitions_that_are_refused_count_and_have_their_rests_as_others(pauses: list[float]) -> None:
    states = building_states("^[a-z]{9000}$")
    schemas, refused = PluginSchemas(), list[tuple[FieldProblem, ...]]()
    for number in range(200):
        definition, problems = schemas.check(costly(number))
        assert definition is None
        refused.append(problems)
    built = [each for each in refused if [problem.field for problem in each] == ["name"]]
    assert 0 < len(built) <= MAX_PLUGIN_STATES // states
    assert len(pauses) == len(built)
    assert all("states together" in each[0].problem for each in refused[len(built) :])
    small = RawDefinition(name="echo", description="d", input_schema_json=SCHEMA, side_effects="none")
    assert schemas.check(small)[0] is not None, "what has no patterns is taken still"


@pytest.mark.usefixtures("pauses")
def test_one_definition_of_all_plugins_is_checked_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    one, overlapped = threading.Lock(), [False]

    def check(_raw: RawDefinition) -> tuple[None, tuple[FieldProblem, ...]]:
        overlapped[0] |= not one.acquire(blocking=False)
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass
        if one.locked():
            one.release()
        return None, ()

    monkeypatch.setattr(definitions, "check_definition", check)
    with ThreadPoolExecutor(6) as threads:
        for number in range(30):
            threads.submit(PluginSchemas().check, costly(number))
    assert overlapped == [False]
