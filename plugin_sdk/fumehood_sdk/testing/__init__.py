"""Calls a plugin's tools inside the test's own process, without a sidecar or a sandbox.

```python
def test_total_is_the_sum():
    result = ToolTester(plugin).call("roll_dice", count=2, sides=6)
    assert result.error is None
    assert result.details["total"] == sum(result.details["dice"])
```

Arguments are checked, results written and exceptions turned into failures by the code that a worker runs. Whether a
tool keeps to its level only the sandbox shows: try it with `fumehood plugin dev`.
"""

from fumehood_sdk.testing.replay import ReplayFailed, replay
from fumehood_sdk.testing.results import CallError, CallLog, CallResult, CallUpdate
from fumehood_sdk.testing.tester import RunningCall, ToolTester

__all__ = ["CallError", "CallLog", "CallResult", "CallUpdate", "ReplayFailed", "RunningCall", "ToolTester", "replay"]
