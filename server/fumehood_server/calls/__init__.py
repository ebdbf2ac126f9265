"""Runs one call from request to outcome. The steps stand in their order in `active`; each is a file beside it."""

from fumehood_server.calls.call import ActiveCall, CallState
from fumehood_server.calls.executor import Executor

__all__ = ["ActiveCall", "CallState", "Executor"]
