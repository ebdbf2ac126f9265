"""What a plugin's code makes its sidecar say has a bound."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from fumehood.v1 import tool_pb2
from fumehood_server.model.tool import Isolation
from fumehood_server.plugins.declared_tools import checked_tools, refuse_forks
from fumehood_server.plugins.refusal import PluginRefusedError

from .support import declared, manifest_of, python

MOST_CHARS = 20 * 1200


def refused(folder: Path, tools: Sequence[tool_pb2.ToolDefinition]) -> PluginRefusedError:
    with pytest.raises(PluginRefusedError) as caught:
        checked_tools(manifest_of(python(folder)), tools, lambda _: Isolation.PROCESS)
    return caught.value


@pytest.mark.parametrize("bad", ["{}", "read:{}", '{}"' + "x" * 5000])
def test_of_many_problems_the_first_are_told_and_how_many_more_there_are(tmp_path: Path, bad: str) -> None:
    requires = [bad.format(f"nonsense-{number}") for number in range(64)]
    error = refused(tmp_path / "one", [declared(f"t{number}", requires=requires) for number in range(20)])
    assert len(error.problems) == len(error.reasons) == 21
    assert "nonsense-0" in error.problems[0].problem
    assert error.problems[-1].problem.endswith(f": {20 * 64 - 20}")
    assert len(str(error)) < MOST_CHARS


def test_few_problems_are_all_told(tmp_path: Path) -> None:
    error = refused(tmp_path / "one", [declared("t", requires=[f"nonsense-{number}" for number in range(20)])])
    assert len(error.problems) == 20
    assert "nonsense-19" in error.problems[-1].problem


def test_many_tools_that_can_not_be_forked_are_not_all_told(tmp_path: Path) -> None:
    manifest = manifest_of(python(tmp_path / "one"))
    call = tool_pb2.ISOLATION_CALL
    tools = checked_tools(manifest, [declared(f"t{n}", isolation=call) for n in range(900)], lambda _: Isolation.CALL)
    with pytest.raises(PluginRefusedError) as caught:
        refuse_forks(manifest, tools, "its import starts threads")
    assert caught.value.problems[-1].problem.endswith(": 880")
    assert len(str(caught.value)) < MOST_CHARS
