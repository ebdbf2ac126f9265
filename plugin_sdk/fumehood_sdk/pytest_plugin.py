"""pytest fixture that runs recorded calls again: `pytest_plugins = ["fumehood_sdk.pytest_plugin"]` in conftest.py.

```python
def test_what_ran_last_week_runs_the_same(fumehood_replay):
    assert fumehood_replay("tests/r-42.jsonl", plugin)
```
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fumehood_sdk.testing import replay

__all__ = ["fumehood_replay"]


@pytest.fixture(scope="session")
def fumehood_replay() -> Callable[..., tuple[str, ...]]:
    """`fumehood_sdk.testing.replay`."""
    return replay
