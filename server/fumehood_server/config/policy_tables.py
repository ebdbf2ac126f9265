"""Schema of `[[policy.rule]]` and `[[policy.quota]]` of fumehood.toml."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fumehood_sandbox import Level
from pydantic import Field

from fumehood_server.config.tables import Table, one_of
from fumehood_server.model.quotas import Per
from fumehood_server.model.tool import Permission

MAX_RULES = 10_000


class ConditionTable(Table):
    """An element of `when` in `[[policy.rule]]`."""

    pointer: str = Field(max_length=1024)
    equals: bool | int | float | str | None = None
    one_of: list[bool | int | float | str] | None = Field(default=None, min_length=1, max_length=1024)
    pattern: str | None = Field(default=None, min_length=1, max_length=1024)
    min: float | None = None
    max: float | None = None


class RuleTable(Table):
    """`[[policy.rule]]`."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    permission: Annotated[Permission, one_of(Permission, "permission")]
    tools: list[str] = Field(default=[], max_length=1024)
    plugins: list[str] = Field(default=[], max_length=1024)
    side_effects: list[Annotated[Level, one_of(Level, "side-effect level")]] = Field(default=[], max_length=4)
    callers: list[str] = Field(default=[], max_length=1024)
    when: list[ConditionTable] = Field(default=[], max_length=64)
    approvers: list[str] = Field(default=[], max_length=1024)
    approvals: int = Field(default=1, ge=1, le=64)
    self_approval: bool = False
    standing: bool = False


MAX_QUOTAS = 256
"""Each call is matched against all that may count its tool."""
_MOST_COUNTED = 2**53


class QuotaMissing(StrEnum):
    """What becomes of a call without the argument that is summed."""

    REFUSE = "refuse"
    ZERO = "zero"


class QuotaTable(Table):
    """`[[policy.quota]]`."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    tools: list[str] = Field(default=[], max_length=1024)
    plugins: list[str] = Field(default=[], max_length=1024)
    side_effects: list[Annotated[Level, one_of(Level, "side-effect level")]] = Field(default=[], max_length=4)
    callers: list[str] = Field(default=[], max_length=1024)
    per: list[Annotated[Per, one_of(Per, "key of a quota")]] = Field(default=[], max_length=3)
    in_flight: int | None = Field(default=None, ge=1, le=100_000)
    calls: int | None = Field(default=None, ge=1, le=_MOST_COUNTED)
    bytes: int | None = Field(default=None, ge=1, le=_MOST_COUNTED)
    engines: list[str] = Field(default=[], max_length=1024)
    inferences: int | None = Field(default=None, ge=1, le=_MOST_COUNTED)
    tokens: int | None = Field(default=None, ge=1, le=_MOST_COUNTED)
    cost: int | float | str | None = None
    sum: str | None = Field(default=None, max_length=1024)
    max: int | float | str | None = None
    missing: Annotated[QuotaMissing, one_of(QuotaMissing, "way with a missing argument")] | None = None
    window: str | None = None


class PolicyTable(Table):
    """`[policy]`."""

    rule: list[RuleTable] = Field(default=[], max_length=MAX_RULES)
    quota: list[QuotaTable] = Field(default=[], max_length=MAX_QUOTAS)
