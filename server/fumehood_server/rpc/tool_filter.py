"""Which tools a listing has: by name, plugin and level."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fumehood.v1 import tool_service_pb2 as pb
from fumehood_sandbox import Level

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.side_effects import SIDE_EFFECTS

MAX_NAMES = 1000
MAX_LISTING_FIELDS = 2_048
"""Fields of a request that has such names, and of the rest, when it is long."""
_LEVELS = {message: level for level, message in SIDE_EFFECTS.items()}


class ToolFilter:
    """Which tools a listing has."""

    def __init__(self, request: pb.ListToolsRequest) -> None:
        """Read it from the request.

        Raises:
            RefusedError: it names too many tools, or a level that is not known.
        """
        check_names(request.names)
        level = request.max_side_effects
        if level and level not in _LEVELS:
            raise RefusedError(Refusal(RefusalReason.REQUEST_INVALID, f"max_side_effects {level} is not known here"))
        self._plugin = request.plugin
        self._names = frozenset(request.names)
        self._ceiling = _LEVELS.get(level, Level.EXTERNAL)
        names = hashlib.sha256("\n".join(sorted(self._names)).encode()).hexdigest()[:16] if self._names else ""
        self.key = (
            request.plugin[:128],
            "all" if request.include_unavailable else "available",
            *((names, str(level)) if names or level else ()),
            *(("callable",) if request.callable_only else ()),
        )
        """What a page's token is bound to."""

    def takes(self, tool: RegisteredTool) -> bool:
        """Whether the tool is wanted."""
        return (
            (not self._plugin or tool.plugin == self._plugin)
            and (not self._names or tool.name in self._names)
            and self._ceiling.allows(tool.definition.side_effects)
        )


def check_names(names: Sequence[str]) -> None:
    """Refuse a request that names too many tools.

    Raises:
        RefusedError: it does.
    """
    if len(names) > MAX_NAMES:
        raise RefusedError(Refusal(RefusalReason.REQUEST_INVALID, f"at most {MAX_NAMES} names"))
