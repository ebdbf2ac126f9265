"""An error's message is cut for the journal once secrets are out of it, so that the cut leaves no part of one."""

from __future__ import annotations

import pytest
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.record_events import kept_of_outcome
from fumehood_server.model.call import CallError, CallOutcome
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Payloads
from fumehood_server.secrets import Redactor

pytestmark = pytest.mark.promise("S811")

SECRET = "hunter2-" * 9
CUT = 512


@pytest.mark.parametrize("before", [CUT - len(SECRET) // 2, 8])
def test_a_secret_across_the_cut_is_taken_out_whole(before: int) -> None:
    progress = Progress()
    progress.redactor = Redactor()
    progress.redactor.learn("KEY", SECRET.encode())
    error = CallError(code=Code.TOOL_EXECUTION_FAILED, message="x" * before + SECRET + "y" * CUT)
    outcome = CallOutcome(call_id="call", tool="echo", error=error, attempts=1)
    fault, _, _ = kept_of_outcome(progress, outcome, Payloads.FULL, in_thread=False)
    assert fault is not None
    assert "hunter" not in fault.message
    assert fault.message.startswith("x" * before)
    assert len(fault.message) == CUT
