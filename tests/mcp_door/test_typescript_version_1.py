"""Version 1 of the official SDK for TypeScript, which most clients are built with: what it makes of calls that fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sidecar import Sidecar, running_sidecar

from .support import BOUND_S

CLIENT = Path(__file__).parent / "typescript" / "version1.mjs"
DENIED, WAITING = 7, 8
RULES = "".join(
    f"""
[[policy.rule]]
name = "of-{first}"
permission = "{permission}"
tools = ["add"]
when = [{{ pointer = "/first", equals = {first} }}]
"""
    for first, permission in ((DENIED, "deny"), (WAITING, "require_approval"))
)


@pytest.fixture(scope="module")
def sidecar(plugin_folder: Path) -> Iterator[Sidecar]:
    with running_sidecar([plugin_folder], more=RULES) as running:
        yield running


def test_it_that_has_listed_a_tool_with_an_output_schema_gets_each_error_of_its_calls(sidecar: Sidecar) -> None:
    calls = [{"first": first, "second": 2} for first in (1, "x", DENIED, WAITING)]
    command = ["node", CLIENT, sys.executable, "-P", "-m", "fumehood_server", "mcp", "--address", sidecar.target]
    environment = {**os.environ, "CALLS": json.dumps(calls)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["outputSchema"]
    worked, *failed = seen["came"]
    assert (worked.get("isError"), worked.get("structuredContent")) == (False, {"total": 3}), worked
    assert not [each for each in failed if "thrown" in each], failed
    assert [(each["isError"], each["_meta"]["fumehood/error"]["code"]) for each in failed] == [
        (True, "TOOL_EXECUTION_FAILED"),
        (True, "TOOL_DENIED"),
        (True, "TOOL_APPROVAL_REQUIRED"),
    ]
    assert all(each["content"][0]["text"] and "structuredContent" not in each for each in failed)
