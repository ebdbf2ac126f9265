"""Hooks and middleware: who is asked before and after calls, what they are told, and what they may answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from fumehood_server.model.call import Block, CallContext, CallError
from fumehood_server.model.caller import Caller
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.selection import selects

MAX_REASON_BYTES = 1024
MAX_SHOWN_AFTER_CHARS = 256 * 1024
"""Of arguments, above which a question after the call is asked without them: with the result they would be more than
the 4 MiB that a gRPC client takes unless it is told otherwise."""


class HookKind(StrEnum):
    """What is asked."""

    HOOK = "hook"
    """A program, by `HookService.Intercept`."""
    MIDDLEWARE = "middleware"
    """Python code in the sidecar."""


class Stage(StrEnum):
    """When it is asked."""

    BEFORE = "before"
    AFTER = "after"


class WhenGone(StrEnum):
    """What comes of a call where a hook can't be asked, or doesn't answer in time."""

    DENY = "deny"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matchers:
    """The calls that a hook is asked about: those that every non-empty field fits, as with rules."""

    tools: tuple[str, ...] = ()
    """Names as callers know them; one that ends in `*` is a beginning."""
    plugins: tuple[str, ...] = ()
    side_effects: tuple[str, ...] = ()
    callers: tuple[str, ...] = ()
    """Names of callers; an empty one is a caller without a name."""

    def speak_of(self, tool: RegisteredTool, caller: str) -> bool:
        """Whether a call of the tool by this caller is one of them."""
        return selects(self, tool) and (not self.callers or caller in self.callers)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookConfig:
    """One `[[hook]]`."""

    name: str
    stages: tuple[Stage, ...] = (Stage.BEFORE,)
    timeout_s: float = 5.0
    when_gone: WhenGone = WhenGone.DENY
    matchers: Matchers = Matchers()
    served_by: tuple[str, ...] = ()
    """Names of callers who may serve it. Empty: whoever is an operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MiddlewareConfig:
    """One `[[middleware]]`."""

    name: str
    timeout_s: float = 30.0
    matchers: Matchers = Matchers()


@dataclass(frozen=True, slots=True, kw_only=True)
class HookedCall:
    """What whoever is asked is told of a call."""

    call_id: str
    tool: str
    plugin: str
    side_effects: str
    idempotent: bool
    caller: Caller
    context: CallContext


@dataclass(frozen=True, slots=True, kw_only=True)
class HookedResult:
    """What the caller of a call that has run would get so far."""

    content: tuple[Block, ...] = ()
    details_json: str = ""
    terminate: bool = False
    error: CallError | None = None


@dataclass(frozen=True, slots=True)
class Allow:
    """The call goes on as it is."""


@dataclass(frozen=True, slots=True)
class Deny:
    """It does not run, or its result is withheld."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class ChangeArguments:
    """It goes on with others."""

    arguments_json: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeResult:
    """Its caller gets something else. None: as it is."""

    output: tuple[tuple[Block, ...], str] | None = None
    """Content and structured output."""
    terminate: bool | None = None
    reason: str = ""


Answer = Allow | Deny | ChangeArguments | ChangeResult


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, and who gave it."""

    answer: Answer
    by: Caller
    """Of middleware: nobody."""


class Gone(StrEnum):
    """Why there is no answer. Stable: callers are told."""

    NOT_CONNECTED = "not_connected"
    TIMEOUT = "timeout"
    DISCONNECTED = "disconnected"
    """It went away while it was asked."""
    FAILED = "failed"
    """Middleware raised, or did not do what it must."""


class HookGoneError(Exception):
    """There is no answer."""

    def __init__(self, problem: Gone, by: Caller | None = None) -> None:
        """`by`: who was asked. None: nobody was."""
        super().__init__(problem.value)
        self.problem = problem
        self.by = by


class HookTurn(Protocol):
    """One hook or middleware, and one call: it is asked at most once before it, and once after it."""

    @property
    def kind(self) -> HookKind:
        """What it is."""

    @property
    def name(self) -> str:
        """In fumehood.toml."""

    @property
    def stages(self) -> Sequence[Stage]:
        """When it wants to be asked."""

    @property
    def when_gone(self) -> WhenGone:
        """What comes of the call where there is no answer."""

    @property
    def timeout_s(self) -> float:
        """How long an answer may take."""

    async def before(self, arguments_json: str) -> Answered:
        """Ask before the call.

        Raises:
            HookGoneError: there is no answer.
        """

    async def after(self, arguments_json: str, result: HookedResult) -> Answered:
        """Ask about its result.

        Raises:
            HookGoneError: there is no answer.
        """

    async def close(self) -> None:
        """The call is over. Bounded, and idempotent."""


class Hooks(Protocol):
    """The hooks and middleware in force."""

    def turns(self, tool: RegisteredTool, call: HookedCall) -> Sequence[HookTurn]:
        """Those to ask about a call, in their order."""

    def __bool__(self) -> bool:
        """Whether there are any at all."""


class NoHooks:
    """See `Hooks`: none."""

    __slots__ = ()

    def turns(self, tool: RegisteredTool, call: HookedCall) -> Sequence[HookTurn]:  # noqa: ARG002 - as in the protocol
        """None."""
        return ()

    def __bool__(self) -> bool:
        """No."""
        return False


NO_HOOKS = NoHooks()
