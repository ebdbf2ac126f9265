"""Quotas: what an operator lets calls use in all, by tool, caller and session, and what one call takes of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from enum import StrEnum
from typing import Protocol

from fumehood_server.model.call import CallRequest
from fumehood_server.model.plugin import RegisteredTool

_WIDE = Context(prec=200)
_ZERO = Decimal(0)


class Counted(StrEnum):
    """What a quota counts."""

    IN_FLIGHT = "in_flight"
    """Calls that have begun, and have no outcome yet."""
    CALLS = "calls"
    BYTES = "bytes"
    """Of arguments, and of results once they are known."""
    SUM = "sum"
    """Of an argument."""
    INFERENCES = "inferences"
    """Of runs."""
    TOKENS = "tokens"
    """Of inferences, in and out, once they are known."""
    COST = "cost"
    """Of inferences by their engines' prices, once it is known."""

    @property
    def of_inferences(self) -> bool:
        """Whether it counts what models are asked, and not calls."""
        return self in _OF_INFERENCES

    @property
    def known_later(self) -> bool:
        """Whether what is counted is known at an end alone: what passes the limit has happened then."""
        return self in _KNOWN_LATER


_OF_INFERENCES = frozenset({Counted.INFERENCES, Counted.TOKENS, Counted.COST})
_KNOWN_LATER = frozenset({Counted.BYTES, Counted.TOKENS, Counted.COST})


class Per(StrEnum):
    """What a quota counts apart."""

    TOOL = "tool"
    CALLER = "caller"
    SESSION = "session"
    """Of one caller: an id is the caller's own word, so that two callers' sessions of one id are two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One `[[policy.quota]]`. It counts a call, or an inference, that every non-empty field fits."""

    name: str
    counts: Counted
    limit: Decimal
    window_us: int = 0
    """0: none, for calls in flight."""
    pointer: str = ""
    """JSON pointer (RFC 6901) with `*` for every element or member: of the argument that is summed."""
    missing_is_zero: bool = False
    """Whether a call without that argument takes nothing. Else it is refused."""
    per: tuple[Per, ...] = ()
    tools: tuple[str, ...] = ()
    """Names as callers know them; one that ends in `*` is a beginning."""
    plugins: tuple[str, ...] = ()
    side_effects: tuple[str, ...] = ()
    callers: tuple[str, ...] = ()
    """Names of callers; an empty one is a caller without a name."""
    engines: tuple[str, ...] = ()
    """Names. Of what counts inferences alone."""

    @property
    def key_parts(self) -> tuple[Per, ...]:
        """What makes a key: a session is one of its caller."""
        return tuple(each for each in Per if each in self.per or (each is Per.CALLER and Per.SESSION in self.per))


def shown(amount: Decimal) -> str:
    """An amount as a decimal number without an exponent: JSON's own numbers are rounded by most who read them."""
    return format(amount.normalize(_WIDE) if amount else _ZERO, "f")


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What one call, or one inference, takes of one quota."""

    quota: str
    counts: Counted
    key: tuple[tuple[str, str], ...]
    """What it is counted apart by, as `Per` names it, and its value."""
    counter: str
    """SHA-256 of the quota's name, of what it counts and of the key: what it has used lies under this."""
    amount: Decimal
    limit: Decimal
    window_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exceeded:
    """Why a call may not begin."""

    charge: Charge
    used: Decimal
    """What is counted now, without the call."""
    now_us: int
    """POSIX time in microseconds, as the journal has it."""
    free_us: int | None
    """When as much as the call takes is free again, if nothing else is counted until then. None: nobody knows, or it
    is more than the limit."""


class QuotaExceededError(Exception):
    """The start of a call or an inference was not recorded: a quota has not as much left as it takes."""

    def __init__(self, exceeded: Exceeded) -> None:
        """Keep what was found."""
        super().__init__(f"quota {exceeded.charge.quota} is used up")
        self.exceeded = exceeded


class Quotas(Protocol):
    """The quotas in force."""

    def counting(self, tool: RegisteredTool, caller: str) -> Sequence[Quota]:
        """Those that count a caller's calls of a tool."""

    def charges(self, found: Sequence[Quota], request: CallRequest, arguments_json: str) -> Sequence[Charge]:
        """What a call with these arguments takes of them. On any thread.

        Raises:
            UncountableError: what it takes of one can't be told.
        """

    def of_inference(self, engine: str, caller: str, session_id: str) -> Sequence[Charge]:
        """What asking an engine takes of each quota that counts it."""


class UncountableError(Exception):
    """What a call takes of a quota can't be told from its arguments, so that it may not run. Its caller must act."""

    def __init__(self, quota: Quota, problem: str) -> None:
        """Keep which, and what is wrong with the argument."""
        super().__init__(problem)
        self.quota = quota
        self.problem = problem


class NoQuotas:
    """See `Quotas`: there are none."""

    def counting(self, tool: RegisteredTool, caller: str) -> Sequence[Quota]:  # noqa: ARG002 - as in the protocol
        """See `Quotas`."""
        return ()

    def charges(self, found: Sequence[Quota], request: CallRequest, arguments_json: str) -> Sequence[Charge]:  # noqa: ARG002 - likewise
        """See `Quotas`."""
        return ()

    def of_inference(self, engine: str, caller: str, session_id: str) -> Sequence[Charge]:  # noqa: ARG002 - likewise
        """See `Quotas`."""
        return ()


NO_QUOTAS = NoQuotas()

__all__ = [
    "NO_QUOTAS",
    "Charge",
    "Counted",
    "Exceeded",
    "Per",
    "Quota",
    "QuotaExceededError",
    "Quotas",
    "UncountableError",
    "shown",
]
