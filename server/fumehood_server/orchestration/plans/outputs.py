"""What steps came to, within a bound on all of it together."""

from __future__ import annotations

from typing import Any

from fumehood_server.orchestration.plans.long_json import TooLongError, dumped_length
from fumehood_server.orchestration.plans.rendering import too_large

MAX_KEPT_CHARS = 32 * 1024 * 1024
"""As JSON."""


class Outputs(dict[str, Any]):
    """Outputs by their steps' names. A step that is not in it has not ended, or was skipped."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        """Nothing yet."""
        super().__init__()
        self._left = MAX_KEPT_CHARS

    async def count(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        """The value, once there is room for it.

        Raises:
            RunFailedError: there is none (TOOL_RESOURCE_EXHAUSTED).
        """
        try:
            size = len(value) if isinstance(value, str) else await dumped_length(value, self._left)
        except TooLongError:
            raise too_large("what the steps came to", MAX_KEPT_CHARS) from None
        if size > self._left:  # others may have been counted meanwhile
            raise too_large("what the steps came to", MAX_KEPT_CHARS)
        self._left -= size
        return value
