"""The page for authors: its plugin runs, and each name that it tells of is there."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import fumehood_sdk
import pytest
from fumehood_sdk import Context
from fumehood_sdk.testing import ToolTester
from fumehood_sdk.tools.declaration import LIMITS

PAGE = (Path(__file__).parents[2] / "docs" / "plugins-python.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("documented")
    monkeypatch.setitem(sys.modules, "documented", module)
    return module


def run(module: types.ModuleType, source: str) -> None:
    exec(source, module.__dict__)  # noqa: S102 - the page's own


def test_the_pages_plugin_works_and_its_test_passes(module: types.ModuleType) -> None:
    run(module, EXAMPLES[0])
    assert ToolTester(module.plugin).call("roll_dice", count=3, sides=6).error is None
    assert ToolTester(module.plugin).call("roll_dice", count=30, sides=6).error is not None
    run(module, EXAMPLES[-1].replace("from dice import plugin", ""))
    module.test_the_total_is_the_sum()


def test_the_page_tells_of_each_exported_name_and_of_all_of_the_context() -> None:
    for name in (*fumehood_sdk.__all__, *LIMITS, *(name for name in dir(Context) if not name.startswith("_"))):
        assert name in PAGE, name
