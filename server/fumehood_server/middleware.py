"""Middleware: what code of the operator's that runs in the sidecar around calls imports. See docs/hooks.md.

An entry point of the group `fumehood.middleware` names an async callable that takes a `Call` and `next`, or a class
without parameters that makes one:

    async def __call__(call: Call, next: Next) -> Result:
        result = await next()
        return result

What it does before `await next()` comes before the call: validation, permission and approval are of what it leaves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import orjson

from fumehood_server.model.call import Annotations


class Denied(Exception):  # noqa: N818 - a decision, and no fault
    """Raise it to end the call: before `next` it does not run, and after it its result is withheld."""

    def __init__(self, reason: str) -> None:
        """`reason` is told to the caller, up to 1,024 bytes of it."""
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that is about to run."""

    call_id: str
    tool: str
    """As callers know it."""
    plugin: str
    side_effects: str
    """"none", "read", "write" or "external"."""
    idempotent: bool
    caller: str
    """Name of who calls. Empty: it has none."""
    authenticated_by: str
    """"unix_socket", "token", "certificate" or "none"."""
    context: Mapping[str, str] = field(default_factory=dict)
    """The caller's correlation: `request_id`, `session_id` and so on, those that are known."""
    arguments_json: str
    """As the tool gets them so far; values of its plugin's secrets are taken out."""

    def arguments(self) -> dict[str, Any]:
        """Parsed anew each time."""
        parsed: dict[str, Any] = orjson.loads(self.arguments_json)
        return parsed


@dataclass(frozen=True, slots=True)
class Content:
    """One block of what a tool shows: text, or bytes with a media type."""

    text: str | None = None
    data: bytes | None = None
    media_type: str = ""
    """Of the bytes; of a text, where the tool says one."""
    resource_uri: str = ""
    """Of the resource that it holds or, in a link, names. Empty: none."""
    annotations: Annotations | None = None
    """For whom it is and how important, by the tool's word."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call failed."""

    code: str
    """See docs/errors.md."""
    message: str
    retryable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What the caller of the call would get so far. Make another one by `changed`."""

    content: tuple[Content, ...] = ()
    details_json: str = ""
    """Structured output. Empty: none."""
    terminate: bool = False
    failure: Failure | None = None
    """None: the call succeeded. It can't be changed."""

    def details(self) -> Any:  # noqa: ANN401 - any JSON value
        """The structured output, parsed anew each time. None: there is none."""
        return orjson.loads(self.details_json) if self.details_json else None

    def changed(
        self,
        *,
        content: tuple[Content, ...] | None = None,
        details: Any = None,  # noqa: ANN401 - likewise
        terminate: bool | None = None,
    ) -> Result:
        """Another result: what is None stays as it is. It is held against the tool's limit and output schema."""
        return replace(
            self,
            content=self.content if content is None else content,
            details_json=self.details_json if details is None else orjson.dumps(details).decode(),
            terminate=self.terminate if terminate is None else terminate,
        )


class Next(Protocol):
    """Goes on with the call."""

    def __call__(self, arguments: Mapping[str, Any] | None = None) -> Awaitable[Result]:
        """Exactly once. `arguments` are put in place of the call's, as a whole; None leaves them.

        Where the call ends without a result (it is cancelled, denied later on, or there is no worker for it), the
        middleware's task is cancelled here.
        """


class Middleware(Protocol):
    """What an entry point names."""

    async def __call__(self, call: Call, next: Next, /) -> Result:  # noqa: A002 - the trade's word
        """Around one call. What it raises, other than `Denied`, ends the call with TOOL_UNAVAILABLE."""


__all__ = ["Annotations", "Call", "Content", "Denied", "Failure", "Middleware", "Next", "Result"]
