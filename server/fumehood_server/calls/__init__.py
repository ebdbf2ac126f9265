"""Runs calls of tools: each is one coroutine, `run.run_call`, whose steps stand in a file each in `steps/`."""

from fumehood_server.calls.call import Call
from fumehood_server.calls.executor import Executor

__all__ = ["Call", "Executor"]
