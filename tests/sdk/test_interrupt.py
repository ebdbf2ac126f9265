"""What an interruption leaves behind in the interpreter: nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

BOUND_S = 30

_PROFILED = """
import sys, threading
from types import SimpleNamespace
from fumehood_sdk.runtime.interrupt import interrupt_call, retract_interruption

call = SimpleNamespace(interruption=threading.Event(), end_claim=[1], thread_id=threading.get_ident())
if sys.argv[1] == "interrupted":
    caught = None
    try:
        interrupt_call(call, threading.Lock())
        for _ in range(1000):
            pass
    except BaseException as exc:
        caught = type(exc).__name__
    assert caught == "Cancelled", caught
call.interruption.set()
retract_interruption(call)
sys.setprofile(lambda *_: None)
(lambda: None)()
print("done")
"""


@pytest.mark.parametrize("before", ["interrupted", "too late"])
def test_code_may_be_profiled_after_an_interruption_was_taken_back(before: str) -> None:
    # In a process of its own: with a fault here the interpreter hangs where no signal reaches it.
    done = subprocess.run(
        [sys.executable, "-c", _PROFILED, before], capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
