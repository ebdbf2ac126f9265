"""Who is asked before and after calls: hooks that are connected, and middleware of the operator's."""

from fumehood_server.hooks.chain import HookChain
from fumehood_server.hooks.connection import HookConnection, Question, UnaskedError
from fumehood_server.hooks.loading import LoadedMiddleware, load_middleware
from fumehood_server.hooks.registry import HookRegistry

__all__ = [
    "HookChain",
    "HookConnection",
    "HookRegistry",
    "LoadedMiddleware",
    "Question",
    "UnaskedError",
    "load_middleware",
]
