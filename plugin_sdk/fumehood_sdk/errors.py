"""Exceptions that plugins raise, and that are raised in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class PluginError(Exception):
    """A declaration is wrong. The plugin's author must mend it; the message says how.

    Raised while the plugin is imported, never during a call.
    """


class ToolError(Exception):
    """A failure that the tool means: raise it to tell the caller, most often a model, what went wrong and what to do.

    Unlike any other exception it is not logged, and its message reaches the caller as it is.
    """

    retryable = False
    """Whether the same call may succeed later, unchanged."""

    def __init__(self, message: str, *, reason: str = "", details: Mapping[str, Any] | None = None) -> None:
        """Keep the failure's parts.

        Args:
            message: What went wrong and what to do. At most 4,096 characters are shown.
            reason: A short word in lower_snake_case for programs, such as "file_not_found". May be empty.
            details: More facts, anything that JSON can hold.
        """
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.details = details


class Transient(ToolError):  # noqa: N818 - the name is fixed by the plugin interface
    """A failure that may pass by itself: the same call may succeed later, unchanged."""

    retryable = True

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """See `ToolError`.

        Args:
            message: What went wrong.
            reason: A short word for programs.
            details: More facts.
            retry_after_s: How long it takes at least until the call may succeed, in seconds, where that is known: as
                `details["retry_after_s"]`. The sidecar does not try again before.
        """
        if retry_after_s is not None:
            details = {**(details or {}), "retry_after_s": retry_after_s}
        super().__init__(message, reason=reason, details=details)


class HttpRefused(ToolError):  # noqa: N818 - says what happened
    """An HTTP request is not allowed, or can't work as it is. `reason` says why, such as "host_not_granted"."""


class HttpFailed(ToolError):  # noqa: N818 - likewise
    """An HTTP request was allowed and did not work out. The same request may succeed later."""

    retryable = True


class SecretRefused(ToolError):  # noqa: N818 - likewise
    """A secret can't be had. The message says why; only the operator can change that."""


class Cancelled(BaseException):
    """The call was cancelled. Raised into a synchronous tool that did not end by itself, and by `Context.sleep`.

    Not an `Exception`, so that `except Exception` lets it pass. Clean up and let it go on.
    """


class ReplayDiverged(BaseException):
    """A call that is run again from its record asks for what the record doesn't have: it does not run as it ran before.

    Not an `Exception`, so that `except Exception` lets it pass.
    """


class WireError(Exception):
    """The sidecar's bytes are not the wire that was agreed on. Ends the process: nothing after them can be trusted."""
