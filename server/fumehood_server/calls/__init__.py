"""Runs calls of tools: each is one coroutine, `run.run_call`, whose steps stand in a file each in `steps/`."""

from fumehood_server.calls.call import Call, JoinedCall
from fumehood_server.calls.documents import NoVerdictError
from fumehood_server.calls.executor import Executor
from fumehood_server.calls.updates import Entry, UpdateReader

__all__ = ["Call", "Entry", "Executor", "JoinedCall", "NoVerdictError", "UpdateReader"]
